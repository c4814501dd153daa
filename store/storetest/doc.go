// Package storetest says what a [headgate.Store] must do, in a form that a store
// can be held against: a conformance suite with vectors, random histories and a model.
//
// # Basics
//
// A store's own tests make a fresh store for each case, one that decides by a
// clock which the suite sets:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(_ testing.TB, clock func() int64) headgate.Store {
//			return memory.New(memory.Clock(clock))
//		})
//	}
//
// [Run] is the suite: every vector, and cases that a table of steps cannot say:
// concurrency, odd keys, the largest requests, exact waiting times. [Histories]
// compares random requests with the [Model].
//
// [RunPermits] does the same for stores that keep permits for several processes.
//
// # Vectors
//
// A vector is a text file that a person can check by hand:
//
//	# A comment.
//	clock 2026-01-01T00:00:00Z
//
//	rule login
//	    sliding_window 20 per 60s
//	    token_bucket   5 per 3s burst 8
//
//	at 0s    take login/ann 8 -> allow remaining=12 reset=1m ; allow remaining=0 reset=4.8s
//	at 200ms take login/ann   -> allow remaining=12 reset=59.8s ; deny remaining=0 retry=400ms reset=4.6s
//	at 1s    refund login/ann 3 @0s
//	    -> allow remaining=15 reset=59s
//	     ; allow remaining=4 reset=2s
//
// A statement begins at the margin; indented lines continue it.
//
// clock is the time that the times of the steps are counted from. A time with
// colons is a time of its own: 2024-03-31T03:00:00+02:00.
//
// rule gives a rule its limits, one on each line, as algorithm and the text that
// [headgate.ParseLimit] reads. A rule of a name that is there already changes it
// from here on, and its counters stay.
//
// at is a step: a time, an operation (take, peek, refund, reset), checks, an arrow,
// and an outcome for each limit of each check. + stands between checks, and ; between
// outcomes.
//
// A check is rule/key, a cost unless it is one, and for a refund perhaps @ and the time
// of the charge. The word shadow may stand before it. A key may be a "quoted Go
// string".
//
// An outcome is allow or deny, what is remaining, and the fields retry, reset and
// delay, which are zero when left out; retry=never is a cost that can never fit. The
// outcome of a reset is done. Durations are as Go writes them, days as in 1d12h.
//
// Steps follow one another on one store, in the order of the lines: a time before
// the last one is a clock that steps back.
//
// # Caveats
//
// The suite imports package testing and belongs in tests. It needs stores whose
// clock can be set; one that only knows its server's clock cannot be held to exact
// times.
package storetest
