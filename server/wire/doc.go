// Package wire reads and writes messages of protobuf by hand, for the doors that decide so
// many requests that generated code would be most of the work.
//
// # Basics
//
// A message is fields, each with a tag (number and kind) before it. [Read] returns a
// [Reader] that walks through them; the Append functions, [Begin] and [End] write them, and a
// [Writer] does so field by field. A gRPC server with the [Codec] takes such messages.
//
// # Caveats
//
// Texts that were read share the memory of the message. Each message that is read or
// written by hand has a test that holds it against the generated code.
package wire
