package httpapi

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/memory"
)

// inMemory decides for real.
type inMemory struct {
	*memory.Store
	set *policy.Set
}

func (m inMemory) Policy() decide.Policy {
	return decide.Policy{Set: m.set, Version: 1, Hash: "5ec2e7"}
}

// TestModes: what a rule's mode and soft mark say stands in its decisions, and
// nowhere else.
func TestModes(t *testing.T) {
	set, err := policy.New([]policy.Rule{
		{Limits: headgate.MustRule("warns", headgate.Sliding(4, time.Minute)), Soft: 50},
		{Limits: headgate.MustRule("tried", headgate.Sliding(1, time.Minute)), Mode: policy.ModeShadow},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := New(over(inMemory{memory.New(), set}), Options{})
	for i, want := range []struct{ soft, shadow string }{
		{`"allowed":true,"capacity"`, `"allowed":true,"shadow":true`},
		{`"allowed":true,"soft":true`, `"allowed":false,"shadow":true`},
	} {
		w := post(h, "/v1/check", `{"descriptor":{"route":"GET /"}}`)
		body := w.Body.String()
		if w.Header()["X-Ratelimit-Warning"] != nil {
			t.Errorf("step %d: a warning without being asked for headers", i+1)
		}
		if !strings.HasPrefix(body, `{"allowed":true,`) || !strings.Contains(body, want.soft) || !strings.Contains(body, want.shadow) {
			t.Errorf("step %d: got %s, want it allowed, with %s and %s", i+1, body, want.soft, want.shadow)
		}
	}
	for i, want := range []string{`"warns"`, `"warns"`, ""} {
		w := post(h, "/v1/check?status=true", `{"descriptor":{"route":"GET /"}}`)
		if got := w.Header().Get("X-Ratelimit-Warning"); got != want || (w.Code == 200) != (want != "") {
			t.Errorf("step %d: %d with the warning %q, want %q", i+1, w.Code, got, want)
		}
	}
}
