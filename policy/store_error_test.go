package policy_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/explain"
)

// TestOnError: what a rule says of a store that does not answer stands in its
// checks, whichever way they are made, and in what explains them.
func TestOnError(t *testing.T) {
	set, err := policy.New([]policy.Rule{
		{Limits: headgate.MustRule("local", headgate.PerSecond(1)), Hints: headgate.Hints{OnError: headgate.OnErrorLocal}},
		{Limits: headgate.MustRule("silent", headgate.PerSecond(1))},
		{Limits: headgate.MustRule("named", headgate.PerSecond(1)), Hints: headgate.Hints{OnError: headgate.OnErrorAllow}, Direct: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	checks, err := set.Match(nil, 1, nil)
	if err != nil || len(checks) != 2 || checks[0].OnError != headgate.OnErrorLocal || checks[1].OnError != headgate.OnErrorReturn {
		t.Errorf("got %+v, %v", checks, err)
	}
	if c, err := set.Check("named", "k", 1); err != nil || c.OnError != headgate.OnErrorAllow {
		t.Errorf("got %+v, %v", c, err)
	}
	e := explain.Request(set, nil, 1, nil)
	e.Observe(set, []headgate.Decision{
		{Rule: checks[0].Rule, Limit: &checks[0].Rule.Limits()[0], Allowed: true, Source: headgate.SourceLocal},
		{Rule: checks[1].Rule, Limit: &checks[1].Rule.Limits()[0], Check: 1, Allowed: true},
	})
	text := e.String()
	if e.Rules[0].OnError != "local" || e.Rules[1].OnError != "" || strings.Count(text, "while the store does not answer: local") != 1 || strings.Count(text, ", says local") != 1 {
		t.Errorf("got %s", text)
	}
	_, err = policy.New([]policy.Rule{{Limits: headgate.MustRule("r", headgate.PerSecond(1)), Hints: headgate.Hints{OnError: 7}}})
	var wrong *policy.Error
	if !errors.As(err, &wrong) || len(wrong.Mistakes) != 1 || wrong.Mistakes[0].Field != "on_store_error" {
		t.Errorf("got %v", err)
	}
}
