package policybench

import (
	"fmt"
	"net/netip"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// kind is what the rules of a policy match.
type kind struct {
	name      string
	condition func(i int) policy.Condition
}

var kinds = []kind{
	{"routes", route},
	{"beginnings", beginning},
	{"networks", network},
	{"mixed", func(i int) policy.Condition {
		return []func(int) policy.Condition{route, beginning, network}[i%3](i)
	}},
}

func route(i int) policy.Condition {
	return policy.Equal("route", fmt.Sprintf("GET /v1/things%d/items", i))
}

func beginning(i int) policy.Condition {
	return policy.Prefix("route", fmt.Sprintf("GET /v1/things%d/", i))
}

func network(i int) policy.Condition {
	return policy.Network("ip", netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24))
}

// sizes are how many rules the policies have.
var sizes = []int{10, 100, 1000}

// set makes a policy of n rules, each with a counter for each user.
func (k *kind) set(n int) (*policy.Set, error) {
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

// request is bound by the eighth rule of every kind, and by no other.
func (k *kind) request() policy.Descriptor {
	d := policy.Descriptor{
		{Name: "method", Value: "GET"},
		{Name: "user", Value: "user42"},
		{Name: "ip", Value: "10.0.7.9"},
		{Name: "route", Value: "GET /v1/things7/items"},
	}
	if k.name == "mixed" {
		d[2].Value = "203.0.113.10" // there the eighth rule matches a beginning
	}
	return d
}
