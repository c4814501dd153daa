package storetest

import (
	"slices"
	"testing"
)

// Run is the conformance suite. Each of its cases is a subtest, on fresh stores. What a few steps
// show is in the vectors; these cases are about what steps cannot say.
func Run(t *testing.T, mk Maker) { runCases(t, mk, false) }

// RunSingle is Run for a store that takes one check at a time, and is no ledger: the
// cases whose requests have one check each.
func RunSingle(t *testing.T, mk Maker) { runCases(t, mk, true) }

// RunVectors is the part of [Run] that the vectors are, every operation on every algorithm: for a
// store that has passed the suite and is reached in another way.
func RunVectors(t *testing.T, mk Maker) { runVectors(t, mk, false) }

func runCases(t *testing.T, mk Maker, single bool) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Maker)
	}{
		{"all algorithms admit or none is charged", mixedAllOrNothing},
		{"all checks admit or none is charged", checksAllOrNothing},
		{"a cost above capacity never fits", neverFits},
		{"refund never gives more than was used", refundNeverOverCredits},
		{"a window owes a bounded number", owedInWindow},
		{"refund of several checks", refundTogether},
		{"reset forgets one key of one rule", resetForgets},
		{"retry after is exact", retryIsExact},
		{"retry after is exact for several limits", retryOfSeveral},
		{"reset after is exact", resetIsExact},
		{"delays follow one another at the rate", delaysAreEven},
		{"no window of any place holds more than the limit", slidingIsExact},
		{"a bucket admits burst and rate, and no more", bucketIsExact},
		{"a clock that steps back neither frees nor freezes", clockStepsBack},
		{"every kind of change while in use", liveChanges},
		{"limits by method, many a second and few an hour", limitsByMethod},
		{"an hourly window is added on one of two servers", hourlyWindowAdded},
		{"lists of limits make each other forget nothing", listsForgetNothing},
		{"a busy list beside a long window", busyBesideLong},
		{"lists that share a bucket", sharedBucket},
		{"lists that share a bucket keep to their own rates", ownRates},
		{"buckets by method, many a second and a few", bucketsByMethod},
		{"the rate of a bucket changes", rateOfABucket},
		{"refunds to lists that share a bucket", refundToAList},
		{"refunds of what has drained", refundOfDrained},
		{"a settlement asks for its list", settledAsks},
		{"a deep bucket beside other lists", deepBucket},
		{"a list of shorter blocks shortens none", blocksOfOthers},
		{"penalties block, longer each time", penaltyBlocks},
		{"penalties count the denials of their rule", penaltyOfOthers},
		{"a request with an id is charged once", onceAtOnce},
		{"a reservation is settled once", settledAtOnce},
		{"a settled reservation is forgotten", settledIsForgotten},
		{"what was refilled is not given back", refilledIsNotGivenBack},
		{"invalid requests", invalidRequests},
		{"keys of any kind", keysOfAnyKind},
		{"the largest request", largestRequest},
		{"costs up to the largest", largestCosts},
		{"decisions are appended", decisionsAreAppended},
		{"a context that has ended", endedContext},
		{"goroutines share a limit exactly", sharedExactly},
		{"goroutines with several checks", sharedTogether},
		{"goroutines take and give back", takenAndGivenBack},
	} {
		if single && takesSeveral(c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) { c.run(t, mk) })
	}
	t.Run("vectors", func(t *testing.T) { runVectors(t, mk, single) })
}

// takesSeveral reports whether a case has requests of several checks, or needs a
// ledger.
func takesSeveral(name string) bool {
	switch name {
	case "all checks admit or none is charged", "refund of several checks",
		"reset forgets one key of one rule", "retry after is exact for several limits", "penalties count the denials of their rule",
		"a request with an id is charged once", "a reservation is settled once", "a settled reservation is forgotten", "a settlement asks for its list", "what was refilled is not given back",
		"the largest request", "decisions are appended", "goroutines with several checks":
		return true
	}
	return false
}

func runVectors(t *testing.T, mk Maker, single bool) {
	vectors, err := Vectors()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		if single && slices.ContainsFunc(v.Steps, func(s Step) bool { return len(s.Checks) > 1 }) {
			continue
		}
		t.Run(v.File, func(t *testing.T) { v.Run(t, mk) })
	}
}
