package insightapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/server/candidate"
	"github.com/headgate/headgate/server/history"
	"github.com/headgate/headgate/server/insightapi"
	"github.com/headgate/headgate/telemetry/insight"
)

// remembered is a history in which each step had as many requests of login as it has minutes, and the
// first step is not known.
type remembered struct {
	whole bool
	err   error
}

func (r remembered) Source() string { return "a test" }
func (r remembered) Whole() bool    { return r.whole }

func (r remembered) Read(_ context.Context, q history.Question) (past insight.Past, err error) {
	for at := q.From; at.Before(q.Until); at = at.Add(q.Step) {
		m := insight.Minute{At: at.Unix(), Unknown: at.Equal(q.From)}
		if !m.Unknown {
			m.Allowed = int64(q.Step / time.Minute)
		}
		past.Minutes = append(past.Minutes, m)
	}
	if q.Rule == "" {
		past.Rules = []insight.RuleCounts{{Rule: "login", Counts: insight.Counts{Allowed: 1000}, Before: insight.Counts{Allowed: 500}}}
	}
	return past, r.err
}

func (r remembered) Marks(_ context.Context, from, _ time.Time) ([]history.Mark, error) {
	return []history.Mark{{At: from.Add(time.Hour).UnixMilli(), Kind: "policy", Text: "long ago"}}, r.err
}

// TestPast: a range that begins before what instances remember is answered from the history, of which
// each instance has a part, or one has all. If it does not answer, the answer says so.
func TestPast(t *testing.T) {
	t.Parallel()
	const day, week = 24*60 - 10, 7*24*60 - 60 // minutes of all steps but the first
	for name, tt := range map[string]struct {
		history history.Reader
		path    string
		step    int64 // in minutes; 0: nothing of the past
		total   int64 // in the minutes; this instance has let in two requests, and the other one one
		rules   int64
	}{
		"a part, a day":      {remembered{}, "now?range=24h", 10, 2 * day, 2000},
		"a part, a week":     {remembered{}, "now?range=168h", 60, 2 * week, 2000},
		"all, a day":         {remembered{whole: true}, "now?range=24h", 10, day, 1000},
		"all, a rule":        {remembered{whole: true}, "rule?rule=login&range=24h", 10, day, 0},
		"a part, a rule":     {remembered{}, "rule?rule=login&range=24h", 10, 2 * day, 0},
		"unused here":        {remembered{}, "rule?rule=keys&range=24h", 10, 2 * day, 0},
		"just started":       {remembered{whole: true}, "now?range=30m", 1, 29, 1000},
		"what is remembered": {remembered{}, "now?range=1m", 0, 3, 3},
		"it fails":           {remembered{whole: true, err: errors.New("Prometheus is away")}, "now?range=24h", 10, 3, 0},
		"there is none":      {nil, "now?range=24h", 0, 3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			second := nodeWith(t, insightapi.Options{Name: "second", History: tt.history})
			first := nodeWith(t, insightapi.Options{Name: "first", History: tt.history}, second.URL)
			first.take(t, "login", "alice", 2)
			second.take(t, "login", "bob", 1)
			var answer struct {
				insightapi.Now
				Use insight.Top `json:"use"`
			}
			if status := first.ask(t, "GET", tt.path, "", &answer); status != http.StatusOK {
				t.Fatalf("status %d", status)
			}
			var total int64
			for _, m := range answer.Minutes {
				total += m.Allowed
			}
			if total != tt.total {
				t.Errorf("the minutes have %d, want %d", total, tt.total)
			}
			if p := answer.Past; (p != nil) != (tt.step > 0) || p != nil && (p.Step != tt.step*60 || p.Source != "a test" || (p.Error != "") != (name == "it fails")) {
				t.Errorf("the past is %+v", p)
			}
			if tt.rules > 0 && (len(answer.Rules) != 1 || answer.Rules[0].Allowed != tt.rules || len(answer.Rules[0].Spark) != 30) {
				t.Errorf("the rules are %+v", answer.Rules)
			}
			if strings.HasPrefix(tt.path, "now") && tt.rules > 3 && answer.Total.Allowed != tt.total {
				t.Errorf("the total is %+v", answer.Total)
			}
			if name == "unused here" {
				return
			}
			var marks insightapi.Marks
			if first.ask(t, "GET", "marks?"+tt.path[strings.Index(tt.path, "range="):], "", &marks); slices.ContainsFunc(marks.Marks, func(m history.Mark) bool { return m.Text == "long ago" }) != (tt.step > 0) {
				t.Errorf("the marks are %+v", marks.Marks)
			}
		})
	}
}

// TestNowIsLive: what the program itself asks for is what instances remember, also just after the start.
func TestNowIsLive(t *testing.T) {
	t.Parallel()
	options := insightapi.Options{Name: "second", History: remembered{whole: true}}
	second := nodeWith(t, options)
	options.Name = "first"
	first := nodeWith(t, options, second.URL)
	first.take(t, "login", "alice", 2)
	second.take(t, "login", "bob", 1)
	now := first.handler.Now(t.Context(), 2*time.Minute, 1)
	last := now.Minutes[max(0, len(now.Minutes)-2):]
	if len(last) != 2 || last[0].Allowed+last[1].Allowed != 3 || now.Past != nil {
		t.Fatalf("the last minutes are %+v, the past is %+v", last, now.Past)
	}
	if at := time.Unix(last[1].At, 0); time.Since(at) > 3*time.Minute {
		t.Errorf("the last minute begins at %v", at)
	}
}

// TestKeysHaveNoPast: of a time that nobody remembers, no keys are shown instead of other ones.
func TestKeysHaveNoPast(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, insightapi.Options{Name: "only", History: remembered{}})
	n.take(t, "login", "alice", 5)
	until := time.Now().Add(-48 * time.Hour).Unix()
	var rule insightapi.RuleReport
	if n.ask(t, "GET", fmt.Sprintf("rule?rule=login&range=2h&until=%d", until), "", &rule); len(rule.Use.Keys)+len(rule.Denied.Keys) != 0 || rule.Past == nil || rule.Allowed != 110 {
		t.Errorf("the rule: %+v", rule)
	}
	var heat insightapi.Clients
	if n.ask(t, "GET", fmt.Sprintf("clients?rule=login&range=2h&until=%d", until), "", &heat); len(heat.Rows) != 0 {
		t.Errorf("the clients: %+v", heat)
	}
}

// TestCandidateOfAll: the figures of a candidate are those of all instances that try the same one.
func TestCandidateOfAll(t *testing.T) {
	t.Parallel()
	with := func(name, hash string, denied int64) insightapi.Options {
		return insightapi.Options{Name: name, Candidate: func() candidate.Report {
			return candidate.Report{Candidate: &candidate.Version{Hash: hash}, Compared: 100, NewlyDenied: denied, Rules: []candidate.Split{{Denier: candidate.Denier{Rule: "login"}, NewlyDenied: denied}}}
		}}
	}
	second, third, fourth := nodeWith(t, with("second", "new", 5)), nodeWith(t, with("third", "other", 7)), newNode(t, "fourth")
	first := nodeWith(t, with("first", "new", 3), second.URL, third.URL, fourth.URL)
	var report insightapi.PolicyReport
	first.ask(t, "GET", "policy", "", &report)
	if c := report.Candidate; c == nil || c.Compared != 200 || c.NewlyDenied != 8 || len(c.Rules) != 1 || c.Rules[0].NewlyDenied != 8 {
		t.Errorf("the candidate: %+v", c)
	}
	if !slices.Equal(report.Elsewhere, []string{"third", "fourth"}) {
		t.Errorf("elsewhere: %v", report.Elsewhere)
	}
}
