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
// Every rule that applies binds the request: there is no first match. Which
// method do you want? [Set.Match] when the facts decide which rules bind;
// [Set.Check] when the caller names the rule and the key itself. [Lint] tells of
// rules that are valid and yet cannot do what they seem to say.
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
// Whether an address may be believed is decided by whoever fills in the entry
// "ip", not here. A text that is no address (one with a port, for instance) is
// counted under itself.
package policy
