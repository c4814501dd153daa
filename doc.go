// Package headgate decides how much work may enter a system.
//
// A [Limit] is one bound, such as "20 per 1m". A [Rule] is a named set of
// limits that are checked and charged together. A [Store] keeps the counters:
// in this process (store/memory) or in Redis or Valkey (store/redis). A
// [Limiter] asks the store whether a request fits its rules, and answers with
// a [Decision] or, for every limit at once, a [Verdict].
//
// # Basics
//
// The common case is one rule and one key:
//
//	login := headgate.MustRule("login",
//		headgate.PerMinute(20),
//		headgate.Sliding(5, 3*time.Second))
//	limiter := headgate.New(memory.New(), login)
//
//	d, err := limiter.Allow(ctx, "user42")
//	if err != nil {
//		return err // the store could not answer
//	}
//	if !d.Allowed {
//		return fmt.Errorf("try again in %v", d.RetryAfter)
//	}
//
// Which method do you want? Allow when a request that does not fit is refused
// at once; Wait when it may be held until it fits; Peek to look without
// charging; Take when several rules and keys (a client, an IP address, the
// whole service) must all admit the request, or none be charged.
//
// # Which limit
//
// [PerSecond], [PerMinute], [PerHour] and [Per] are token buckets, the usual choice:
// they admit their count at once ([Limit.WithBurst] changes that) and refill evenly.
// [Sliding] never admits more than its count within any window of its length, wherever
// it begins. A [Limit] written out has the other algorithms: windows of the calendar
// ([FixedWindow]), an estimate of a sliding window in constant memory
// ([SlidingCounter]), and requests spaced evenly by delays ([LeakyBucket]). [Blocking]
// blocks those who go on after denials.
//
// # More than one process
//
// Open a store/redis in place of store/memory, and all processes share the limits
// exactly; store/postgres and store/memcached do without Redis. Package store/layered
// spares calls to such a store and decides while it does not answer. The middleware for
// net/http is package httplimit, and rules by the facts about a request are package
// policy.
//
// # Costs that are known later
//
// [Limiter.Reserve] charges an estimate, and [Limiter.Settle] makes it the real cost,
// in any process. [Limiter.TakeOnce] charges a request once however often it is
// repeated. Both need a store that is a [Ledger], as the stores of this project are.
//
// # Caveats
//
// A denial is data, never an error: only [Limiter.Wait] turns one into a
// [*DeniedError]. An error says that nothing was decided, and for a store
// across a network it may be unknown whether the units were charged; see
// [ErrUnavailable].
//
// A rule's name is part of every counter's key: rename a rule and its counters
// start afresh. Change its limits and what was used stays used.
package headgate
