package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// rule returns a rule with 20 units a minute that counts by the parts.
func rule(name string, match []policy.Condition, per ...string) policy.Rule {
	r := policy.Rule{Match: match, Limits: headgate.MustRule(name, headgate.PerMinute(20))}
	for _, s := range per {
		p, err := policy.ParsePart(s)
		if err != nil {
			panic(err)
		}
		r.Per = append(r.Per, p)
	}
	return r
}

func mustNew(t testing.TB, rules []policy.Rule, opts ...policy.Option) *policy.Set {
	t.Helper()
	s, err := policy.New(rules, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// per returns limits of so many units a minute, made for a rule.
func per(name string, count int64) *headgate.Rule {
	return headgate.MustRule(name, headgate.PerMinute(count))
}

// noon is the time on the clock of these tests.
var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func atNoon() policy.Option { return policy.Clock(func() time.Time { return noon }) }

// facts reads a descriptor such as "ip=192.0.2.1,user=kim".
func facts(text string) policy.Descriptor {
	var d policy.Descriptor
	for pair := range strings.SplitSeq(text, ",") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			d = append(d, policy.Entry{Name: name, Value: value})
		}
	}
	return d
}
