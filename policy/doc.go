// Package policy finds the rules that bind a request.
//
// A [Descriptor] holds the facts about a request: its api_key, ip, user, route
// and whatever else a rule may look at. A [Set] holds all rules, compiled.
// [Set.Match] turns the one into the checks that a headgate.Store takes.
//
// # Basics
//
// A [Rule] says what it applies to (Match), what it counts by (Per) and what it
// admits (Limits):
//
//	set, err := policy.New([]policy.Rule{{
//		Match:  []policy.Condition{policy.Equal("route", "POST /v1/token")},
//		Per:    []policy.Part{{Entry: "api_key"}},
//		Limits: headgate.MustRule("login", headgate.Sliding(20, time.Minute)),
//	}}, policy.WithHashKey(key))
//
// Every rule that applies binds the request: there is no first match. A rule may
// have its limits by the value of an entry (Tariff), other ones for some clients
// (Overrides), its cost by an entry (Costs), and count without denying (Mode,
// Enforce). A set may have lists that answer before any rule ([WithDenied],
// [WithAllowed]), and a table that knows the clients ([WithSubjects]).
//
// Which method do you want? [Set.Decide] when the facts decide which rules bind,
// and [Set.Match] if the checks are all that matters; [Set.Check] when the caller
// names the rule and the key itself; [Set.Explain] to see why. [Lint] tells of
// what is valid and yet cannot do what it seems to say, and [Footprints] what
// the counters take in Redis.
//
// # Caveats
//
// A rule does not bind a request that lacks one of its Per entries, and an entry
// with an empty value is a missing one: clients without an identity never share
// one counter by accident. Give them a rule of their own, by [Absent]; [Lint]
// warns when nothing else catches them.
//
// Secret entries (api_key, token, authorization, and those of [WithSecrets])
// appear in keys only as hashes. Without [WithHashKey] the hash has no key, so
// that whoever reads the store can test guesses against it.
//
// The table of subjects knows better than the request: for clients that it has,
// its entries replace those of the request. Clients that it has not keep what
// they say of themselves, unless it has a row for all others.
//
// Overrides and entries of lists end by the clock of this process, not by that of
// the store: nodes whose clocks differ differ for that time.
//
// Whether an address may be believed is decided by whoever fills in the entry
// "ip", not here. A text that is no address (one with a port, for instance) is
// counted under itself.
package policy
