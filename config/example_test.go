package config_test

import (
	"fmt"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/policy"
)

func ExampleParse() {
	set, err := config.Parse("policy.yml", []byte(`
rules:
  - name: anonymous
    match: { api_key: absent }
    per: [ip/64]
    algorithm: fixed_window
    limits: [100 per 1m]
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	checks, err := set.Match(policy.Descriptor{{Name: "ip", Value: "2001:db8::1"}}, 1, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(checks[0].Rule, "for", checks[0].Key)
	// Output: anonymous (100 per 1m) for 2001:db8::/64
}

func ExampleError() {
	_, err := config.Parse("policy.yml", []byte(`
rules:
  - name: login
    macth: { route: POST /v1/token }
    per: all
    limits: [20 pr 60s, 0 per 3s]
`))
	fmt.Println(err)
	// Output:
	// policy.yml:4:5: a rule has no field "macth"; did you mean "match"?
	// policy.yml:6:14: limit "20 pr 60s": write it as "20 per 60s", "50 per 1s burst 200" or "1000 per calendar month"
	// policy.yml:6:25: limit "0 per 3s": count is 0, must be 1 to 9007199254740991
}
