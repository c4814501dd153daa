#!/bin/sh
# Starts two servers and a gateway before them, until it is interrupted:
#
#   examples/gateway/run.sh
set -eu
cd "$(dirname "$0")/../.."
bin=$(mktemp -d)
servers=
# An empty list is nothing to end.
trap 'kill $servers 2>/dev/null || true; rm -rf "$bin"' EXIT
trap 'exit 0' INT TERM
go build -o "$bin/upstream" ./examples/gateway/upstream
(cd server && go build -buildvcs=false -o "$bin/headgate" ./cmd/headgate)
for port in 9001 9002; do
  "$bin/upstream" -listen 127.0.0.1:$port &
  servers="$servers $!"
done
"$bin/headgate" gateway --gateway examples/gateway/gateway.yml --config examples/gateway/limits.yml --access-log "$@" &
servers="$servers $!"
wait
