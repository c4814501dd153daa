package policybench

import (
	"fmt"
	"net/netip"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// Kind is what the rules of a policy match.
type Kind struct {
	// Name and Note go into the tables.
	Name, Note string
	condition  func(i int) policy.Condition
}

// Kinds are those that are measured.
func Kinds() []Kind {
	route := func(i int) policy.Condition {
		return policy.Equal("route", fmt.Sprintf("GET /v1/things%d/items", i))
	}
	path := func(i int) policy.Condition {
		return policy.Prefix("route", fmt.Sprintf("GET /v1/things%d/", i))
	}
	network := func(i int) policy.Condition {
		return policy.Network("ip", netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24))
	}
	return []Kind{
		{"routes", "each rule matches one route", route},
		{"beginnings", "each rule matches all routes that begin alike (`GET /v1/things7/*`)", path},
		{"networks", "each rule matches the addresses of one network", network},
		{"mixed", "a third of each", func(i int) policy.Condition {
			return []func(int) policy.Condition{route, path, network}[i%3](i)
		}},
	}
}

// Sizes are how many rules the policies have.
func Sizes() []int { return []int{10, 100, 1000} }

// Set makes a policy of n rules, each with a counter for each user.
func (k Kind) Set(n int) (*policy.Set, error) {
	rules := make([]policy.Rule, n)
	for i := range rules {
		limits, err := headgate.NewRule(fmt.Sprintf("rule%d", i), headgate.PerMinute(20))
		if err != nil {
			return nil, err
		}
		rules[i] = policy.Rule{Limits: limits, Match: []policy.Condition{k.condition(i)}, Per: []policy.Part{{Entry: "user"}}}
	}
	return policy.New(rules)
}

// Request is one that meets the eighth rule of every kind, and no other.
func (k Kind) Request() policy.Descriptor {
	d := policy.Descriptor{
		{Name: "method", Value: "GET"},
		{Name: "user", Value: "user42"},
		{Name: "ip", Value: "10.0.7.9"},
		{Name: "route", Value: "GET /v1/things7/items"},
	}
	if k.Name == "mixed" {
		// There it is the rule that matches a beginning.
		d[2].Value = "203.0.113.10"
	}
	return d
}
