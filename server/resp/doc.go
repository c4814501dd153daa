// Package resp serves decisions over the protocol of Redis (RESP2 and RESP3), so
// that every client of Redis, in any language, is a client.
//
// # Basics
//
// A [Server] asks a [decide.Decider] and needs nothing else:
//
//	server := resp.New(decider, resp.Options{})
//	err := server.Serve(listener)
//
// HG.CHECK takes units, all or none; HG.PEEK looks; HG.REFUND gives back; HG.RESET
// forgets. HG.RESERVE takes an estimate, which HG.SETTLE corrects and HG.CANCEL
// gives back. CL.THROTTLE is that of redis-cell, for limits that no policy has.
// docs/resp.md explains them all.
//
// Commands may be sent one after another without waiting for their answers. They
// are answered in order, and what has arrived together is answered together.
//
// # Caveats
//
// A command is bounded by [MaxCommand], an answer is sent before the next one
// grows it beyond that, and connections are bounded by [Options.MaxConnections];
// together they bound the memory.
//
// Without a token in [Options], whoever can reach the server can spend and reset
// anybody's units: it belongs behind a loopback address or a private network then.
package resp
