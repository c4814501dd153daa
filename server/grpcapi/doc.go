// Package grpcapi serves decisions over gRPC, with the services of api/headgate/v1.
//
// # Basics
//
// A [Service] asks a [decide.Decider] and needs nothing else:
//
//	server := grpc.NewServer()
//	grpcapi.New(decider, grpcapi.Options{}).Register(server)
//
// Requests and answers have the same fields as in the HTTP API; docs/grpc.md describes them. A
// denial is an answer, not an error. A request with mistakes fails with INVALID_ARGUMENT, which
// lists them all, and charges nothing. If the store does not answer, a call fails with UNAVAILABLE.
//
// A [Store] is for callers who bring their own rules, as they would to a Redis server. The
// library's client for a remote Headgate uses it. [Permits] serves the rules that bound what is in
// progress over all processes.
//
// # Streams
//
// For each check, a stream costs a fraction of a unary call. To keep it so, the messages of streams
// are encoded and decoded by hand (package wire and stream.go), while unary calls use the generated
// code. When the server is being shut down, a stream ends in an orderly way: what was answered was
// decided, and what was not answered was not charged. Its status says so; see [ReasonStreamEnded].
//
// # Caveats
//
// The gRPC server has to bound connections, message sizes and times. The only authentication is the
// token of a [Store] and the admin token of [Permits]. Whoever else can reach the server can spend
// and reset anybody's units.
//
// # Reasons
//
// Programs that use the server as their store send the rule with each check, and the server reuses
// the rule that it made from the same bytes before. So rules need no registration, which could be
// lost with a connection.
package grpcapi
