// Package insight records who uses what, in bounded memory: the keys that use a rule most, those
// that are denied most, and those that come close to their limits.
//
// # Basics
//
// Make a [Recorder], put its hooks around the store, and ask it for reports:
//
//	recorder := insight.New(insight.Options{})
//	defer recorder.Close()
//	store := headgate.Observe(memory.New(), recorder.Hooks())
//	// ... later, for a page or a log:
//	rule, ok := recorder.Rule("login", 10*time.Minute)
//	denials := recorder.Denials(0, 100)
//
// [Recorder.Overview] reports the rules with their totals, [Recorder.Rule] everything about one
// rule, [Recorder.Heat] the busiest keys of a rule minute by minute, and [Recorder.Denials] recent
// denials with the reason for each.
//
// # What the counts say
//
// Keys are counted with the algorithm Space-Saving (Metwally et al., 2005). A count may be too high
// by its Error at most, and is never too low: Count − Error ≤ true ≤ Count. The error is at most
// N/m, where N is the sum of everything counted and m is the number of keys that are followed. A
// key that is not listed was counted at most [Top.Absent] times.
//
// Figures are kept for [Kept]: by minute for totals, and by [Step] for keys. A report for a range
// includes the whole step in which the range begins, so its keys may reach back up to one step
// further.
//
// # Memory
//
// One rule takes at most [MaxRuleBytes], and all rules together at most
// [Options.MaxBytes]. A rule that does not fit is not followed, and [Left] counts what
// was left out for that reason. A rule that nobody uses for [Kept] is forgotten.
//
// # Caveats
//
// Keys are kept as they are in the checks. If a key is secret, a [headgate.Check] that package
// policy has made has a keyed hash of it. A program that makes its own checks must not put secrets
// into keys.
//
// A decision is copied to a buffer and counted later: at the latest when the buffer is full or a
// report is made. For each key and rule, at most one denial a second is recorded as an event, with
// the number of denials since the event before.
package insight
