package candidate

import (
	"fmt"
	"testing"
	"time"
)

// TestMerge: reports of servers that compare the same policies add up. A key that a full list lacks may
// have been in it as often as its last one.
func TestMerge(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	report := func(live, hash string, minutes int, keys ...Key) Report {
		when := at.Add(time.Duration(minutes) * time.Minute)
		return Report{
			Live: Version{Hash: live}, Candidate: &Version{Hash: hash}, Since: when, CountingSince: when, Crowded: 1, Compared: 10, NewlyDenied: 4, NotCompared: NotCompared{Dropped: 2},
			Rules:          []Split{{Denier: Denier{Rule: "login"}, NewlyDenied: 4, Tiers: []Tier{{"pro", 4, 0}}}, {Denier: Denier{Rule: fmt.Sprint("of ", minutes)}, NewlyAdmitted: 1}},
			TopNewlyDenied: keys,
		}
	}
	key := func(name string, count, over int64) Key { return Key{Denier{Rule: "login"}, name, count, over} }
	var full []Key
	for i := range topKeys {
		full = append(full, key(fmt.Sprintf("full%02d", i), int64(100-i), 0))
	}
	r := report("a", "b", 1, key("anna", 90, 1), key("full00", 1, 0))
	if !r.Merge(report("a", "b", 0, full...)) {
		t.Fatal("the same policies are not merged")
	}
	if r.Compared != 20 || r.NewlyDenied != 8 || r.NotCompared.Dropped != 4 || r.Crowded != 2 || !r.Since.Equal(at) || !r.CountingSince.Equal(at.Add(time.Minute)) {
		t.Errorf("%+v", r)
	}
	if got, want := fmt.Sprint(r.Rules), "[{{login } 8 0 0 [{pro 8 0}]} {{of 0 } 0 1 0 []} {{of 1 } 0 1 0 []}]"; got != want {
		t.Errorf("the rules are %v, want %v", got, want)
	}
	if got, want := fmt.Sprint(len(r.TopNewlyDenied), r.TopNewlyDenied[:3]), "20 [{{login } anna 171 82} {{login } full00 101 0} {{login } full01 99 0}]"; got != want {
		t.Errorf("the keys are %v, want %v", got, want)
	}
	for name, other := range map[string]Report{"another candidate": report("a", "c", 0), "another policy": report("c", "b", 0), "none": {Live: Version{Hash: "a"}}} {
		if r.Merge(other) {
			t.Errorf("%s is merged", name)
		}
	}
}
