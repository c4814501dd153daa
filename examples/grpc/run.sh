#!/usr/bin/env bash
# Starts a Headgate server and a gRPC service that counts there, and has both asked:
#
#   examples/grpc/run.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
. examples/common.sh
build
for program in service caller ask login; do
	go build -buildvcs=false -o "$dir/$program" ./examples/grpc/$program
done
"$PROGRAM" serve --config examples/grpc/limits.yml --listen 127.0.0.1:8080 --grpc-listen 127.0.0.1:9090 --grpc-store >"$dir/log" 2>&1 &
answers 127.0.0.1:9090
"$dir/service" -headgate 127.0.0.1:9090 &
answers 127.0.0.1:9100
echo "The server, asked by its policy's rule of 20 in an hour:"
"$dir/ask"
echo "A login, of which only failures count, five in a quarter of an hour:"
"$dir/login"
echo "The service, which admits 3 calls in 10 seconds:"
"$dir/caller"
echo "The same, by a caller that waits:"
"$dir/caller" -wait 20s
