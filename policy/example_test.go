package policy_test

import (
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

func Example() {
	set, err := policy.New([]policy.Rule{
		{
			Match:  []policy.Condition{policy.Equal("route", "POST /v1/token")},
			Per:    []policy.Part{{Entry: "user"}},
			Limits: headgate.MustRule("login", headgate.Sliding(20, time.Minute)),
		},
		{
			Match:  []policy.Condition{policy.Absent("user")},
			Per:    []policy.Part{{Entry: "ip", Bits6: 64}},
			Limits: headgate.MustRule("anonymous", headgate.PerMinute(100)),
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, d := range []policy.Descriptor{
		{{Name: "route", Value: "POST /v1/token"}, {Name: "user", Value: "ada"}},
		{{Name: "route", Value: "POST /v1/token"}, {Name: "ip", Value: "2001:db8::1"}},
	} {
		checks, err := set.Match(d, 1, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, c := range checks {
			fmt.Printf("%s counts under %q\n", c.Rule.Name(), c.Key)
		}
	}
	// Output:
	// login counts under "ada"
	// anonymous counts under "2001:db8::/64"
}

func ExampleSet_Check() {
	set, err := policy.New([]policy.Rule{{
		Limits: headgate.MustRule("auth.createToken", headgate.Sliding(20, time.Minute)),
		Direct: true,
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	check, err := set.Check("auth.createToken", "user42", 1)
	fmt.Println(check.Rule, check.Key, err)
	_, err = set.Check("auth.createTokn", "user42", 1)
	fmt.Println(err)
	// Output:
	// auth.createToken (20 per 1m) user42 <nil>
	// headgate: there is no rule "auth.createTokn"; there are auth.createToken
}

func ExampleSet_Decide() {
	set, err := policy.New(
		[]policy.Rule{{
			Per: []policy.Part{{Entry: "user"}},
			Tariff: &policy.Tariff{
				Entry: "tier",
				Tiers: []policy.Tier{{Value: "pro", Limits: headgate.MustRule("api", headgate.PerMinute(600))}},
				Other: headgate.MustRule("api", headgate.PerMinute(60)),
			},
		}},
		policy.SubjectTable(policy.Subjects{By: "user", Table: []policy.Subject{
			{Key: "ada", Entries: []policy.Entry{{Name: "tier", Value: "pro"}}},
		}}),
		policy.Denied(policy.ListEntry{Name: "mallory", Match: []policy.Condition{policy.Equal("user", "mallory")}}),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, user := range []string{"ada", "eve", "mallory"} {
		out, err := set.Decide(policy.Descriptor{{Name: "user", Value: user}}, 1, nil)
		switch {
		case err != nil:
			fmt.Println(err)
		case out.Denied != nil:
			fmt.Println(user, "is denied by", out.Denied.Name)
		default:
			fmt.Println(user, "meets", out.Checks[0].Rule)
		}
	}
	// Output:
	// ada meets api (600 per 1m)
	// eve meets api (60 per 1m)
	// mallory is denied by mallory
}
