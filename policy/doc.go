// Package policy finds the rules that bind a request.
//
// A [Descriptor] holds the facts about a request: its api_key, ip, user, route
// and whatever else a rule may look at. A [Set] holds all rules, compiled.
// [Set.Match] makes the checks that a headgate.Store takes out of the two.
//
// # Basics
//
// A [Rule] says which requests it applies to (Match), by which entries it counts
// them (Per) and how many it admits (Limits):
//
//	set, err := policy.New([]policy.Rule{{
//		Match:  []policy.Condition{policy.Equal("route", "POST /v1/token")},
//		Per:    []policy.Part{{Entry: "api_key"}},
//		Limits: headgate.MustRule("login", headgate.Sliding(20, time.Minute)),
//	}}, policy.HashKey(key))
//
// Every rule that applies binds the request, not only the first one. A rule may
// choose its limits by the value of an entry (Tariff), give some clients other
// limits (Overrides), take its cost from an entry (Costs), and count without
// denying (Mode, Enforce). A set may have lists that answer a request before any
// rule does ([Denied], [Allowed]), and a table of what is known about
// clients ([SubjectTable]).
//
// # Limits for one client
//
// Three things give a client other limits than those of the rule. Each works on what the one before
// has left, and all of them keep what the client has used:
//
//   - The table of subjects adds entries to the request, such as tier=gold. It is for facts about
//     clients that several rules use.
//   - The tariff chooses the rule's limits by one entry, such as tier. It is for plans.
//   - Overrides replace the limits of the rule or of its tier while their conditions hold. They are
//     for single clients, and for a limited time.
//
// [Set.Limits] says what is left for a client in the end.
//
// # Questions
//
// There are three ways to ask a set:
//
//   - [Set.Decide] has the facts decide which rules bind. [Set.Match] is the same for
//     callers that want the checks only, and [Set.Bind] is for requests with several
//     descriptors.
//   - [Set.Check] is for callers that name the rule and the key themselves.
//   - [Set.Inspect] says of each rule why it binds a request or does not.
//
// Other packages look at a set from outside: package lint warns about what is valid
// and yet cannot do what it seems to say, package explain tells people why a request
// is decided as it is, and package footprint estimates what the counters take in
// Redis.
//
// # Caveats
//
// A rule does not bind a request that lacks one of its Per entries, and an entry
// with an empty value is a missing entry. Clients without an identity therefore never
// share one counter by accident. Give them a rule of their own, with the condition
// [Absent]; package lint warns if no rule binds them.
//
// Secret entries (api_key, token, authorization, and those of [Secrets])
// appear in keys only as hashes. Without [HashKey] the hash has no key, so
// that whoever reads the store can test guesses against it.
//
// For clients that are in the table of subjects, the table's entries replace those
// of the request. A client that is not in the table keeps what it says about itself,
// unless the table has a row for all others.
//
// Overrides and entries of lists end by the clock of this process, not by the store's
// clock. If the clocks of two nodes differ, so do the times at which they end there.
//
// Whether an address can be believed is for whoever fills in the entry "ip" to decide.
// A text that is no address (one with a port, for instance) is counted as it is.
package policy
