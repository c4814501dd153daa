package headgate_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

func TestRuleWithTag(t *testing.T) {
	plain := headgate.MustRule("r", headgate.PerSecond(5))
	tagged, err := plain.WithTag("orders")
	if err != nil {
		t.Fatal(err)
	}
	if plain.Tag() != "" || tagged.Tag() != "orders" {
		t.Errorf("the tags are %q and %q, want none and \"orders\"", plain.Tag(), tagged.Tag())
	}
	if tagged.Name() != plain.Name() || tagged.ID() != plain.ID() || tagged.String() != plain.String() {
		t.Errorf("got %v, want all but the tag as in %v", tagged, plain)
	}
	if none, err := tagged.WithTag(""); err != nil || none.Tag() != "" {
		t.Errorf("got the tag %q and %v, want it taken away", none.Tag(), err)
	}
	for _, bad := range []string{"a b", "{a}", "a}", "\n", "\xff", strings.Repeat("x", headgate.MaxTag+1)} {
		if _, err := plain.WithTag(bad); !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), "the tag has") {
			t.Errorf("the tag %q gives %v, want ErrInvalid that says what is wrong", bad, err)
		}
	}
}
