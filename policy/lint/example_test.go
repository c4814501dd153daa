package lint_test

import (
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/lint"
)

func ExampleWarnings() {
	set, err := policy.New([]policy.Rule{{
		Match:  []policy.Condition{policy.Absent("user")},
		Limits: headgate.MustRule("anonymous", headgate.Sliding(20, time.Minute), headgate.Sliding(20, 3*time.Second)),
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, w := range lint.Warnings(set) {
		fmt.Println(w)
	}
	// Output:
	// HG001: rule "anonymous": limit "20 per 3s" can never bind: "20 per 1m" lets at most 20 units pass in that time; set its count below 20, or leave it out
}
