// Package replay decides the requests of an access log by the rules of a policy, as if the
// rules had been in force, and counts what became of them.
//
// # Basics
//
//	clock := new(replay.Clock)
//	set, err := config.Load("proposed.yaml", policy.Clock(clock.Now))
//	...
//	r := replay.New(replay.Options{Policy: set, Clock: clock, Entries: log.Entries()})
//	for {
//		stretch, err := log.Next() // of package accesslog
//		if errors.Is(err, io.EOF) {
//			break
//		}
//		...
//		r.Add(stretch)
//		stretch.Release()
//	}
//	result := r.Result(log.Stats())
//
// # How it works
//
// Each line becomes the descriptor that a door of the service would have made of the
// request. [policy.Set.Decide] finds the checks, and a memory store, whose clock is the
// time of the log, takes them: the code that decides in production, step by step.
//
// # Times of whole seconds
//
// Where the log has no finer times, a second store decides every request as if all those
// of one second had come at its beginning. The first store has them spread evenly over the
// second. What really happened lies between; see [Interval].
//
// # Caveats
//
// Counters are empty when the log begins. A rule with a period of an hour denies too
// little in the first hour; see [Options.Warmup].
//
// Clients would have behaved otherwise if they had been denied. A replay says what the
// rules do to the demand that the log shows.
package replay
