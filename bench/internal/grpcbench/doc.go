// Package grpcbench measures what one check costs Headgate's server over gRPC,
// beside bare servers of grpc-go that only echo.
//
// # Basics
//
// The servers run and are measured as those of package servicebench are: each is a
// process of its own, saturated in turn, and what counts is its CPU time. Calls are
// held against a bare echo of calls, streams against one of a stream; both
// echoes decode the same request and encode it again.
//
// # Caveats
//
// Those of package servicebench.
package grpcbench
