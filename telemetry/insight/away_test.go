package insight_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/telemetry/insight"
)

// TestOutcomes records a request of each outcome, and looks for it in every report.
func TestOutcomes(t *testing.T) {
	rule := headgate.MustRule("login", headgate.PerMinute(10))
	share := headgate.MustRule("login", headgate.PerMinute(4))
	limit, part := &rule.Limits()[0], &share.Limits()[0]
	checks := []headgate.Check{{Rule: rule, Key: "anna", Cost: 3}}
	decision := func(allowed bool, by headgate.Source, l *headgate.Limit) []headgate.Decision {
		return []headgate.Decision{{Rule: rule, Limit: l, Allowed: allowed, Source: by, Remaining: 1, RetryAfter: time.Second}}
	}
	for _, test := range []struct {
		name string
		do   func(*insight.Door)
		// request and check are what is counted of the door and of the rule.
		request, check insight.Counts
		away           int64
		asked          int64
		list           insight.ListCounts
	}{
		{name: "admitted", do: func(d *insight.Door) { d.Decided(1, checks, decision(true, headgate.SourceStore, limit)) }, request: insight.Counts{Allowed: 1}, check: insight.Counts{Allowed: 1}, asked: 3},
		{name: "denied", do: func(d *insight.Door) { d.Decided(1, checks, decision(false, headgate.SourceStore, limit)) }, request: insight.Counts{Denied: 1}, check: insight.Counts{Denied: 1}, asked: 3},
		{name: "failed", do: func(d *insight.Door) { d.Failed(checks) }, request: insight.Counts{Failed: 1}, check: insight.Counts{Failed: 1}, away: 1},
		{name: "open", do: func(d *insight.Door) { d.Decided(1, checks, decision(true, headgate.SourceOpen, limit)) }, request: insight.Counts{Allowed: 1, Open: 1}, check: insight.Counts{Allowed: 1, Open: 1}, away: 1, asked: 3},
		{name: "local", do: func(d *insight.Door) { d.Decided(1, checks, decision(false, headgate.SourceLocal, part)) }, request: insight.Counts{Denied: 1, Local: 1}, check: insight.Counts{Denied: 1, Local: 1}, away: 1, asked: 3},
		{name: "unbound", do: func(d *insight.Door) { d.Decided(1, nil, nil) }, request: insight.Counts{Allowed: 1}},
		{name: "deny list", do: func(d *insight.Door) { d.Listed("bad-net", true) }, request: insight.Counts{Listed: 1}, list: insight.ListCounts{Entry: "bad-net", Denies: true, Hits: 1}},
		{name: "allow list", do: func(d *insight.Door) { d.Listed("monitor", false) }, request: insight.Counts{Allowed: 1, Passed: 1}, list: insight.ListCounts{Entry: "monitor", Hits: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := insight.New(insight.Options{})
			defer r.Close()
			// A record before must not be seen in the next one of its buffer.
			door := r.Door("http")
			test.do(door)
			o := r.Overview(insight.Last(time.Minute), 9)
			if len(o.Doors) != 1 || o.Doors[0].Counts != test.request {
				t.Errorf("the door has %+v, want %+v", o.Doors, test.request)
			}
			if len(o.Lists) > 0 {
				test.list.Spark = o.Lists[0].Spark
			}
			if want := test.list.Entry != ""; want != (len(o.Lists) == 1) || want && (o.Lists[0].Entry != test.list.Entry || o.Lists[0].Hits != 1 || o.Lists[0].Denies != test.list.Denies) {
				t.Errorf("lists %+v, want %+v", o.Lists, test.list)
			}
			one, known := r.Rule("login", insight.Last(time.Minute))
			if known != (test.check != insight.Counts{}) || one.Counts != test.check {
				t.Fatalf("the rule has %+v, %v, want %+v", one.Counts, known, test.check)
			}
			if !known {
				return
			}
			key := r.Key("login", "anna")
			if one.Away.Total != test.away || (key.Away != nil) != (test.away > 0) {
				t.Errorf("without the store: %+v and %+v, want %d", one.Away, key.Away, test.away)
			}
			if asked := key.Asked[len(key.Asked)-1]; asked != test.asked {
				t.Errorf("it asked for %d units, want %d", asked, test.asked)
			}
			if found := r.Find(func(_, key string) bool { return key == "anna" }, 9); len(found) != 1 || found[0].Rule != "login" {
				t.Errorf("found %+v", found)
			}
			if len(one.Limits) > 0 && one.Limits[0].Limit != "10 per 1m" {
				t.Errorf("the share is shown as a limit of the policy: %+v", one.Limits)
			}
			if tops := r.Tops(insight.Last(time.Minute), 9); (len(tops) == 1) != (test.check.Denied+test.away > 0) {
				t.Errorf("tops %+v", tops)
			}
			for _, d := range r.Search(func(_, _ string) bool { return true }, 9) {
				if d.Limit != "10 per 1m" || d.Remaining != 1 || d.Source == "local" && d.Capacity != 4 {
					t.Errorf("denial %+v", d)
				}
			}
		})
	}
}

// TestSince: a key is denied since the first of the steps in a row that have it.
func TestSince(t *testing.T) {
	rule := headgate.MustRule("login", headgate.PerMinute(10))
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	r := insight.New(insight.Options{Now: func() time.Time { return now }})
	defer r.Close()
	door := r.Door("http")
	deny := func(minute int) {
		now = time.Date(2026, 1, 1, 12, minute, 0, 0, time.UTC)
		door.Decided(1, []headgate.Check{{Rule: rule, Key: "anna", Cost: 1}}, []headgate.Decision{{Rule: rule, Limit: &rule.Limits()[0]}})
		r.Memory()
		r.Overview(insight.Last(time.Minute), 1) // Counts it now.
	}
	for _, minute := range []int{3, 27, 31, 45, 48} {
		deny(minute)
	}
	one, _ := r.Rule("login", insight.Last(time.Minute))
	if len(one.Denied.Keys) != 1 {
		t.Fatalf("keys %+v", one.Denied.Keys)
	}
	at := func(s int64) string { return time.Unix(s, 0).UTC().Format("15:04") }
	if k := one.Denied.Keys[0]; at(k.Since) != "12:27" || at(k.Last) != "12:48" {
		t.Errorf("denied from %s to %s, want from 12:27 to 12:48", at(k.Since), at(k.Last))
	}
}
