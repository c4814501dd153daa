// Package client asks a Headgate server over gRPC.
//
// # Basics
//
// A [Client] asks by the rules of the server's policy, in the messages of
// api/headgate/v1:
//
//	c, err := client.New("headgate.internal:9090", client.TLS(nil))
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	verdict, err := c.Check(ctx, &headgatev1.CheckRequest{Entries: map[string]string{"user": user}})
//
// Its [Store] is a [headgate.Ledger] with rules of your own, for whatever works with
// a store: a headgate.Limiter, a middleware. The server must have been started with
// --grpc-store.
//
//	limiter := headgate.New(c.Store(), headgate.MustRule("login", headgate.PerMinute(20)))
//
// Which do you want? The Client where the rules are the operators', changed without
// a new build and the same for every language; the Store where they are the
// program's, and the server takes the place of Redis.
//
// [Client.Gate] bounds what is in progress over all processes, by a rule of the server:
//
//	gate, err := c.Gate("report", shared.Config{Queue: 20, MaxWait: 10 * time.Second})
//
// # Calls and streams
//
// While few calls are under way each is a call of gRPC. When there are more
// ([StreamFrom]), they go over one stream, those together in a message that wait
// for each other: that takes a fraction of the CPU on both sides. If the server has
// no streams, or one breaks, calls go out as calls again.
//
// # Caveats
//
// Every call ends within [Timeout], or with its context if that is earlier. It
// is never repeated once the server may have decided it: the error wraps
// [headgate.ErrUnavailable], and it is not known whether the units were charged. The
// exception is a server that is being shut down, which says what it has not decided.
//
// A server that hangs is left by the connection after about half a minute; until
// then calls end by their deadline, and beyond [MaxInFlight] at once.
//
// A stream stays with one server. Behind a balancer that spreads calls over several,
// use [NoStreams].
package client
