#!/bin/sh
# The first process of a container ignores SIGTERM unless it says otherwise: without this, stopping takes 10 s.
trap 'kill "$server"' TERM INT
httpd -f -p "${PORT:-8080}" -h /www &
server=$!
wait "$server"
