package candidate

import (
	"reflect"
	"testing"
	"time"

	"github.com/headgate/headgate/policy"
)

// TestBounds: a report says which rules let more or less be in progress, and nothing of those
// that let the same.
func TestBounds(t *testing.T) {
	t.Parallel()
	bounded := func(name string, p policy.InProgress, overrides ...int64) policy.Rule {
		r := policy.Rule{Name: name, Per: []policy.Part{{Entry: "user"}}, InProgress: &p}
		for _, limit := range overrides {
			r.Overrides = append(r.Overrides, policy.Override{Match: []policy.Condition{policy.Equal("user", "ada")}, InProgress: limit})
		}
		return r
	}
	tariff := func(pro int64) policy.InProgress {
		return policy.InProgress{Entry: "tier", Values: map[string]int64{"free": 1, "pro": pro, "staff": 9}}
	}
	live := set(t, []policy.Rule{
		bounded("same", policy.InProgress{Limit: 2}), bounded("less", policy.InProgress{Limit: 3}), bounded("tariff", tariff(5)),
		bounded("gone", policy.InProgress{Limit: 1}), limits("rate", 5, "user"), bounded("override", policy.InProgress{Limit: 1}, 4),
	})
	tried := set(t, []policy.Rule{
		bounded("new", policy.InProgress{Limit: 7}), bounded("same", policy.InProgress{Limit: 2}), bounded("tariff", tariff(6)), limits("rate", 6, "user"),
		bounded("less", policy.InProgress{Limit: 2, Shared: true, Wait: time.Second, Queue: 10}), bounded("override", policy.InProgress{Limit: 1}, 5),
	})
	s := newStage(t, live, tried, Options{})
	want := []Rebound{
		{"less", &Bound{Limit: 3, Most: 3}, &Bound{Limit: 2, Most: 2, WaitMS: 1000, Queue: 10, Shared: true, TTLMS: 30_000}},
		{"tariff", &Bound{Most: 9}, &Bound{Most: 9}},
		{"gone", &Bound{Limit: 1, Most: 1}, nil},
		{"override", &Bound{Limit: 1, Most: 4}, &Bound{Limit: 1, Most: 5}},
		{"new", nil, &Bound{Limit: 7, Most: 7}},
	}
	if got := s.trial.Report(false).InProgress; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	s.setCandidate(live)
	if got := s.trial.Report(false).InProgress; got != nil {
		t.Errorf("of the same policy: %+v", got)
	}
}
