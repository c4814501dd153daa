package config

import (
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// fileText is a file as it was read, before its rules are compiled.
type fileText struct {
	rules []entry[ruleText]
	short []entry[shortText]
}

// ruleText is one entry of the field rules.
type ruleText struct {
	places    places
	name      string
	match     []policy.Condition
	per       []policy.Part
	algorithm headgate.Algorithm
	limits    []entry[limitText]
	cost      int64
	zone      *time.Location
}

// shortText is one entry of the field limits, the short form.
type shortText struct {
	places places
	name   string
	config []entry[windowText]
}

// windowText is one window of the short form; the period is in seconds.
type windowText struct{ limit, period int64 }

// places says where the fields of a rule stand, by the words of policy.Mistake.
type places map[string]place

func (p *places) keep(at place, field string, index ...int) {
	if *p == nil {
		*p = make(places)
	}
	for _, i := range index {
		field = fmt.Sprintf("%s.%d", field, i)
	}
	(*p)[field] = at
}

// policyFile has the fields of a policy file. The loader reads by it and the
// schema is made of it, so that the two cannot differ.
func policyFile() value[fileText] {
	v := object("a policy", []field[fileText]{
		to("rules", "the rules: all that match a request bind it", listOf(ruleMapping(), 1, policy.MaxRules),
			func(into *fileText, _ *node, v []entry[ruleText]) { into.rules = v }),
		to("limits", "rules in the short form: exact sliding windows, counted under the key that the caller names", listOf(shortMapping(), 1, policy.MaxRules),
			func(into *fileText, _ *node, v []entry[shortText]) { into.short = v }),
	})
	v.schema["minProperties"] = 1
	return v
}

func ruleMapping() value[ruleText] {
	return object("a rule", []field[ruleText]{
		required(to("name", "the name that counters are kept under: 1 to 128 bytes without spaces and braces", nameText(),
			func(into *ruleText, n *node, v string) {
				into.name = v
				into.places.keep(n.at, "name")
			})),
		to("match", "what entries of the request must be, such as { route: POST /v1/token }; every request if left out", matchMapping(),
			func(into *ruleText, n *node, v []entry[policy.Condition]) {
				into.places.keep(n.at, "match")
				for i, c := range v {
					into.match = append(into.match, c.value)
					into.places.keep(c.at, "match", i)
				}
			}),
		to("per", "the entries that counters are kept by, such as [api_key] or [ip/64]; one counter for all if left out", listOf(partText(), 1, policy.MaxParts),
			func(into *ruleText, n *node, v []entry[policy.Part]) {
				into.places.keep(n.at, "per")
				for _, p := range v {
					if p.good {
						into.places.keep(p.at, "per", len(into.per))
						into.per = append(into.per, p.value)
					}
				}
			}),
		to("algorithm", "the arithmetic of the limits that do not name their own; token_bucket if left out", algorithmName(),
			func(into *ruleText, _ *node, v int) { into.algorithm = headgate.Algorithm(v) }),
		required(to("limits", "what may pass, such as [20 per 60s, 5 per 3s]; all are checked and charged together", listOf(limitEither(), 1, headgate.MaxLimits),
			func(into *ruleText, n *node, v []entry[limitText]) {
				into.limits = v
				into.places.keep(n.at, "limits")
			})),
		to("cost", "what the cost of each request is multiplied by; 1 if left out", wholeNumber(1, headgate.MaxCount),
			func(into *ruleText, n *node, v int64) {
				into.cost = v
				into.places.keep(n.at, "cost")
			}),
		to("time_zone", "the time zone of calendar windows that do not name their own, such as Europe/Berlin; UTC if left out", zoneText(),
			func(into *ruleText, n *node, v *time.Location) {
				into.zone = v
				into.places.keep(n.at, "time_zone")
			}),
	})
}

func shortMapping() value[shortText] {
	window := object("a window", []field[windowText]{
		required(to("limit", "how many units pass in any window", wholeNumber(1, headgate.MaxLog),
			func(into *windowText, _ *node, v int64) { into.limit = v })),
		required(to("period", "the length of the window, in seconds", wholeNumber(1, int64(headgate.MaxPeriod/time.Second)),
			func(into *windowText, _ *node, v int64) { into.period = v })),
	})
	return object("an entry of limits", []field[shortText]{
		required(to("name", "the name that callers use and counters are kept under: 1 to 128 bytes without spaces and braces", nameText(),
			func(into *shortText, n *node, v string) {
				into.name = v
				into.places.keep(n.at, "name")
			})),
		required(to("config", "the windows that are checked and charged together, such as [{limit: 20, period: 60}]", listOf(window, 1, headgate.MaxLimits),
			func(into *shortText, n *node, v []entry[windowText]) {
				into.config = v
				into.places.keep(n.at, "limits")
			})),
	})
}

// nameText leaves the check to headgate.NewRule, whose words name the byte.
func nameText() value[string] {
	s := schema{"minLength": 1, "maxLength": headgate.MaxName, "pattern": `^[^\x00-\x20\x7f{}]+$`}
	return plainText(s, func(text string) (string, error) { return text, nil })
}

func partText() value[policy.Part] {
	s := schema{"pattern": `^[A-Za-z0-9_.:-]{1,64}(/[0-9]{1,3}){0,2}$`}
	return plainText(s, policy.ParsePart)
}

func zoneText() value[*time.Location] {
	return plainText(schema{"minLength": 1}, headgate.LoadLocation)
}

func algorithmName() value[int] {
	var choices []string
	for a := headgate.TokenBucket; a <= headgate.SlidingCounter; a++ {
		choices = append(choices, a.String())
	}
	return oneOf(choices...)
}

func alignName() value[int] {
	var choices []string
	for a := headgate.AlignUTC; a <= headgate.AlignYear; a++ {
		choices = append(choices, a.String())
	}
	return oneOf(choices...)
}
