package policy

import (
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

func tagged(t *testing.T, name, tag string) *headgate.Rule {
	t.Helper()
	r, err := per(name, 1).WithTag(tag)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestTagsAgree: all limits of a rule are counted in one place.
func TestTagsAgree(t *testing.T) {
	who := []Condition{Equal("user", "u")}
	_, err := New([]Rule{
		{Limits: tagged(t, "a", "x"), Overrides: []Override{{Match: who, Limits: tagged(t, "a", "x")}, {Match: who, Limits: per("a", 2)}}},
		{Name: "b", Tariff: &Tariff{Entry: "tier", Tiers: []Tier{{"pro", tagged(t, "b", "x")}}, Other: per("b", 1)}},
		{Name: "c", Tariff: &Tariff{Entry: "tier", Tiers: []Tier{{"pro", tagged(t, "c", "x")}}, Other: tagged(t, "c", "x")}},
	})
	for _, want := range []string{
		`rule "a": the rule's tag is "x", but that of the override is ""`,
		`rule "b": the rule's tag is "", but that of the tier "pro" is "x"`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %s", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), `"c"`) {
		t.Errorf("got %v, want nothing of a rule whose tags agree", err)
	}
}
