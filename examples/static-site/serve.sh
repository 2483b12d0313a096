#!/bin/sh
# The first process of a container ignores SIGTERM without a handler. Without this one, stopping takes 10 s.
trap 'kill "$server"' TERM INT
httpd -f -p "${PORT:-8080}" -h /www &
server=$!
wait "$server"
