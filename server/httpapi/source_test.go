package httpapi

import (
	"context"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// elsewhere has somebody else than the store decide.
type elsewhere struct {
	*fake
	source headgate.Source
}

func (e elsewhere) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	dst, err := e.fake.Take(ctx, op, checks, dst)
	for i := range dst {
		dst[i].Source = e.source
	}
	return dst, err
}

// TestSource: who decided is told if it was not the store.
func TestSource(t *testing.T) {
	for source, want := range map[headgate.Source]string{
		headgate.SourceStore: `"allowed":true,"capacity"`,
		headgate.SourceCache: `"allowed":true,"source":"deny_cache","capacity"`,
		headgate.SourceLease: `"allowed":true,"source":"lease","capacity"`,
		headgate.SourceLocal: `"allowed":true,"source":"local","capacity"`,
		headgate.SourceOpen:  `"allowed":true,"source":"open","capacity"`,
		headgate.SourceAsync: `"allowed":true,"source":"async","capacity"`,
	} {
		h := New(over(elsewhere{newFake(t), source}), Options{})
		body := post(h, "/v1/check", `{"checks":[{"rule":"auth.createToken","key":"k"}]}`).Body.String()
		if strings.Count(body, want) != 2 {
			t.Errorf("%v: got %s, want %s twice", source, body, want)
		}
	}
}
