#!/bin/sh
# Starts a Headgate server and a gRPC service that counts there, and has both asked:
#
#   examples/grpc/run.sh
set -eu
cd "$(dirname "$0")/../.."
bin=$(mktemp -d)
servers=
# An empty list is nothing to end.
trap 'kill $servers 2>/dev/null || true; rm -rf "$bin"' EXIT
trap 'exit 0' INT TERM
for program in service caller ask; do
  go build -buildvcs=false -o "$bin/$program" ./examples/grpc/$program
done
(cd server && go build -buildvcs=false -o "$bin/headgate" ./cmd/headgate)
"$bin/headgate" serve --config examples/grpc/limits.yml --listen 127.0.0.1:8080 --grpc-listen 127.0.0.1:9090 --grpc-store >"$bin/log" 2>&1 &
servers="$servers $!"
"$bin/service" -headgate 127.0.0.1:9090 &
servers="$servers $!"
sleep 1
echo "The server, asked by its policy's rule of 20 in an hour:"
"$bin/ask"
echo "The service, which admits 3 calls in 10 seconds:"
"$bin/caller"
echo "The same, by a caller that waits:"
"$bin/caller" -wait 20s
