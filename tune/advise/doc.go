// Package advise derives limits from what clients did, or from what a service can sustain. It
// writes them as a policy, with the numbers on which they are based.
//
// # Basics
//
//	o, err := advise.New(advise.Options{Per: "ip", Entries: log.Entries()})
//	... o.Add(stretch) for each stretch of the log
//	advice, err := o.Advise()
//	text := advice.YAML(nil)
//
// # How it works
//
// For each client and several window lengths, it finds the largest number of requests in any
// window. Robots that say so are left out, and so are outliers: the clients are sorted by that
// number, and if one above the 95th percentile has at least twice as much as the one before it,
// that client and all above are outliers. The demand is what most of the other clients never
// exceed, times the headroom. A token bucket is then fitted to pass the demand: its rate is that of
// the longest window, and its burst is what the shorter windows need in addition.
//
// # Caveats
//
// A robot that pretends to be a browser, and takes no more than people do, counts as a person. If
// there are fewer than fifty clients a day, or less than a day of logs, there is no advice.
package advise
