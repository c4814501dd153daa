// Package advise finds limits in what clients did, or in what a service can bear, and
// writes them as a policy with the numbers that they come from.
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
// For each client it is counted how much it did in windows of several lengths, and the
// most of each length is kept. Robots that say so are left out, and so are outliers: where
// the clients are sorted by that number, and one above the 95th percentile has at least
// twice as much as the next, it and all above are. What most of the others never exceed,
// times the headroom, is the demand that must pass. A token bucket is fitted above it: its
// rate is that of the longest window, and its burst what the shorter ones need beyond.
//
// # Caveats
//
// A robot that passes for a browser, and takes no more than people do, is taken for one.
// Advice from fewer than fifty clients a day, or from less than a day, is refused.
package advise
