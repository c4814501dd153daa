// Package prom shows what a [headgate.Store] decides to Prometheus.
//
// # Basics
//
// Make a [Recorder] on a registry and put its hooks around the store:
//
//	recorder, err := prom.New(prometheus.DefaultRegisterer)
//	if err != nil {
//		return err
//	}
//	store := headgate.Observe(memory.New(), recorder.Hooks())
//
// These metrics come of it:
//
//	headgate_decisions_total{rule, limit, outcome}    one for each limit of each request taken
//	headgate_decisions_by_source_total{source}        the same, by who decided: store, async, local and so on
//	headgate_store_duration_seconds{op}               how long the store took, errors included
//	headgate_store_errors_total{op, reason}           calls that ended without a decision
//
// The outcome is "allowed" where the units were charged, "denied" where this
// limit did not admit them, and "uncharged" where it would have but another
// limit of the same request denied. A limit of a rule in shadow denies nobody:
// what it would have denied is "shadow_denied". So the allowed decisions of a
// limit are the requests that it let pass, the denied ones those that it held
// back, and the shadow_denied ones those that it would hold back if the rule were
// enforced.
// Only takes are counted as decisions: a peek decides nothing, and a refund or
// a reset is no request.
//
// A decision by a node's share of a limit counts as one by the limit.
//
// The reason is "unavailable" (the store did not answer, or not in time),
// "invalid" (the checks were at fault), "canceled" (the caller went away) or
// "other".
//
// # Caveats
//
// No label ever holds a key. Labels hold names of rules, texts of limits and
// nothing else, so that there are as many series as the policy has limits, times
// four. A program that makes up rule names from what its users send has no such
// bound.
//
// A rule that is no longer in the policy keeps its series until the process ends, or
// until [Recorder.Keep] is told that it has gone.
package prom
