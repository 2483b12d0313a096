#!/bin/sh
# Entry point of the image. A process whose state folder belongs to somebody else would end with an error of the file system.
case "${1:-}" in
  control-plane | gateway | agent | relay)
    if [ ! -w "$STATE_DIR" ]; then
      owner=$(stat -c 'belongs to user %u' "$STATE_DIR" 2>/dev/null || echo 'does not exist')
      echo "berth: user $(id -u) cannot write to STATE_DIR ($STATE_DIR), which $owner. Run this on the volume or folder behind it:" \
        "chown -R $(id -u):$(id -g) $STATE_DIR" >&2
      exit 2
    fi
    ;;
esac
exec /usr/lib/berth/bin/berth "$@"
