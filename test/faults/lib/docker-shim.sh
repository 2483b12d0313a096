#!/bin/sh
# Runs instead of the docker command of one agent (docker-shim.ts puts a copy first on its PATH) and lets a test stop it at a verb:
#   before-VERB: does not run the command; ends with the file's text as the error ("hold": waits while the file exists, then fails)
#   after-VERB:  runs the command and holds back its end while the file exists
# reached-… shows that the agent has reached this point.
here=$(dirname "$0")
real=/usr/bin/docker
verb= skip=
for word in "$@"; do
  if [ -n "$skip" ]; then skip=; continue; fi
  case "$word" in
    --config | --host) skip=1 ;;
    *) verb=$word; break ;;
  esac
done
if [ -e "$here/before-$verb" ]; then
  read -r text <"$here/before-$verb"
  : >"$here/reached-before-$verb"
  if [ "$text" = hold ]; then
    while [ -e "$here/before-$verb" ]; do sleep 0.05; done
    text='held by a test'
  fi
  echo "$text" >&2
  exit 1
fi
if [ -e "$here/after-$verb" ]; then
  out=$("$real" "$@")
  code=$?
  : >"$here/reached-after-$verb"
  while [ -e "$here/after-$verb" ]; do sleep 0.05; done
  printf '%s\n' "$out"
  exit $code
fi
exec "$real" "$@"
