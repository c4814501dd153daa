// Package e2e tests the program as its users have it: the real binary, asked
// over HTTP and from the command line, on memory and on real Redis and Valkey
// servers.
//
// # Basics
//
// The tests build the binary once and start as many servers of it as they need,
// each on a free port of the loopback interface:
//
//	s := serve(t, "--store", database.URL())
//	s.check(t, `{"checks":[{"rule":"login","key":"k"}]}`)
//
// # Caveats
//
// What one package can be asked alone is tested there: the replies to every
// mistake in server/httpapi, the texts of every command in server/cli, and the
// middleware against a recorded log in examples/middleware.
package e2e
