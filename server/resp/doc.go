// Package resp serves decisions over the protocol of Redis (RESP2 and RESP3), so that programs in
// any language can use them through a Redis client.
//
// # Basics
//
// A [Server] asks a [decide.Decider] and needs nothing else:
//
//	server := resp.New(decider, resp.Options{})
//	err := server.Serve(listener)
//
// HG.CHECK takes units from all limits or from none, HG.PEEK takes nothing and says what HG.CHECK
// would say, HG.REFUND gives units back, and HG.RESET forgets what was used. HG.RESERVE takes an
// estimated cost, which HG.SETTLE corrects and HG.CANCEL gives back. CL.THROTTLE is the command of
// redis-cell, for limits that are in no policy. docs/resp.md describes all commands.
//
// Clients may send commands without waiting for the answers to earlier ones (pipelining). Answers
// come in the order of the commands, and the answers to commands that arrive together are sent
// together.
//
// Redcon v1.6.4 was measured in its place, with HG.CHECK on 2 cores; the figures are the server's CPU
// time for a command, in three rounds. Of 16 connections with 32 commands at a time: this package 1.84
// to 2.14 µs, without standby 2.12 to 2.24, redcon 2.64 to 2.82. Of 64 connections with one command
// at a time: 11.3 to 14.7 µs, without standby 20.4 to 23.5, redcon 20.2 to 22.0.
//
// # Caveats
//
// Three bounds together limit the memory: a command has at most [MaxCommand] bytes, pending answers
// are sent before they grow much larger than that, and there are at most [Options.MaxConnections]
// connections.
//
// Without a token in [Options], anybody who can reach the server can spend and reset anybody's
// units. The server then belongs on a loopback address or in a private network.
package resp
