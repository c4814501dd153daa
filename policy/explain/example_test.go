package explain_test

import (
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/explain"
)

func ExampleRequest() {
	set, err := policy.New([]policy.Rule{{
		Match:  []policy.Condition{policy.Equal("route", "POST /v1/token")},
		Per:    []policy.Part{{Entry: "user"}},
		Limits: headgate.MustRule("login", headgate.Sliding(20, time.Minute)),
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	e := explain.Request(set, policy.Descriptor{{Name: "route", Value: "GET /"}, {Name: "user", Value: "ada"}}, 1, nil)
	fmt.Print(e.String())
	// Output:
	// the request has
	//   route = "GET /"
	//   user = "ada"
	// and costs 1
	//
	// no rule binds it
	//
	// do not bind it
	//   login: route is "GET /", must be "POST /v1/token"
}
