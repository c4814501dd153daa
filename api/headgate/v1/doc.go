// Package headgatev1 has the messages and services of Headgate over gRPC, generated
// from the .proto files beside it: the service Headgate, which decides by the server's
// rules, the service Permits, which bounds what is in progress by them, and the service
// Store, which counts for callers who bring their own rules.
//
// Programs in Go use package client, which speaks both. The questions and answers are
// explained, with examples, in docs/grpc.md.
package headgatev1
