#!/bin/bash
# Health check of a container of Berth: asks /readyz at the port of LISTEN. Without LISTEN, a command runs that answers nothing.
# bash and not Node: it runs every few seconds in six containers.
[ -n "${LISTEN:-}" ] || exit 0
exec 3<>"/dev/tcp/127.0.0.1/${LISTEN##*:}" || exit 1
printf 'GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
read -r -t 15 _ status _ <&3
[ "$status" = 200 ] && exit 0
echo "/readyz answers ${status:-nothing}: $(timeout 2 tail -n 1 <&3 | head -c 2000)"
exit 1
