#!/bin/sh
# Starts Berth with the Node of this artefact, also by a symbolic link.
here=$(dirname "$(readlink -f "$0")")
exec "$here/node" "$here/../lib/berth.js" "$@"
