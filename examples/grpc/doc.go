// Package grpc has a gRPC service that limits its callers, a caller that keeps to
// what it says, and a program that asks a Headgate server itself. All of them at once:
//
//	examples/grpc/run.sh
package grpc
