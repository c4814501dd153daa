// Package replay decides the requests of an access log by the rules of a policy, as if the rules
// had been in force, and counts the results.
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
// Each line becomes the descriptor that a door of the service would have made for the request.
// [policy.Set.Decide] finds the checks. A memory store, whose clock is the time of the log, decides
// them. This is the same code as in production.
//
// # Times of whole seconds
//
// If the log has only whole seconds, requests are decided twice. One store takes the requests of
// each second as spread evenly over it. The other takes all of them at the beginning of the second.
// The truth is between the two results; see [Interval].
//
// # Caveats
//
// Counters are empty when the log begins. A rule with a period of an hour denies too
// little in the first hour; see [Options.Warmup].
//
// Clients would have behaved differently if they had been denied. A replay says what the rules do
// with the demand in the log.
package replay
