package explain

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/policy"
)

// TestExplainOfManyValues: anyone may ask why a rule does not bind, so that the answer
// must not cost more the more values the rules have.
func TestExplainOfManyValues(t *testing.T) {
	const values = 5000
	users := make([]string, values)
	for i := range users {
		users[i] = fmt.Sprint("user-", i)
	}
	s := mustNew(t, []policy.Rule{rule("r", []policy.Condition{policy.Equal("user", users...)}, "user")})
	var e Explanation
	explain := func() { e = Request(s, policy.Descriptor{{Name: "user", Value: "nobody"}}, 1, nil) }
	explain()
	if n := testing.AllocsPerRun(10, explain); n > 100 {
		t.Errorf("%v allocations for a rule with %d values, want at most 100", n, values)
	}
	want := `user is "nobody", must be one of "user-0", "user-1", "user-10" and 4997 more`
	if why := e.Rules[0].Why; why != want {
		t.Errorf("got %s, want %s", why, want)
	}
	secret := mustNew(t, []policy.Rule{rule("r", []policy.Condition{policy.Equal("api_key", users...)}, "user")})
	if why := Request(secret, policy.Descriptor{{Name: "api_key", Value: "nobody"}}, 1, nil).Rules[0].Why; strings.Contains(why, "user-") || strings.Contains(why, "nobody") {
		t.Errorf("secrets are shown: %s", why)
	}
}
