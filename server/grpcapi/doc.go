// Package grpcapi serves decisions over gRPC, as api/headgate/v1 has them.
//
// # Basics
//
// A [Service] asks a [decide.Decider] and needs nothing else:
//
//	server := grpc.NewServer()
//	grpcapi.New(decider, grpcapi.Options{}).Register(server)
//
// It asks and answers in the words of the HTTP API; docs/grpc.md explains it. A
// denial is an answer. A request with mistakes is INVALID_ARGUMENT with every one
// of them, and charges nothing; a store that does not answer is UNAVAILABLE.
//
// A [Store] is for callers who bring their own rules, as they would to a Redis
// server; the library's client for a remote Headgate is one.
//
// # Streams
//
// A stream costs a fraction of a call for each check, because of which its messages
// are read and written by hand (wire.go, stream.go); unary calls use the generated
// code. A stream ends in order when the server is being shut down: what was
// answered was decided, and what was not answered was not charged, which its last
// status says; see [ReasonStreamEnded].
//
// # Caveats
//
// Connections, message sizes and time are the server's to bound. There is no
// authentication but for the token of a [Store]: whoever can reach the server can
// spend and reset anybody's units.
package grpcapi
