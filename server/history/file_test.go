package history_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/history"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/telemetry/insight"
)

// process is one that counts, and keeps its history in a file, with a clock that stands still.
type process struct {
	recorder *insight.Recorder
	file     *history.File
	log      *bytes.Buffer
	store    headgate.Store
}

var (
	login = headgate.MustRule("login", headgate.PerHour(1))
	start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

func begin(t *testing.T, path string, now *time.Time) *process {
	t.Helper()
	p := &process{recorder: insight.New(insight.Options{Now: func() time.Time { return *now }}), log: new(bytes.Buffer)}
	t.Cleanup(p.recorder.Close)
	p.store = headgate.Observe(memory.New(), p.recorder.Hooks())
	p.file = history.Open(path, p.recorder, slog.New(slog.NewTextHandler(p.log, nil)))
	return p
}

// take asks for a unit: the first of a key is admitted.
func (p *process) take(t *testing.T, rule *headgate.Rule, key string) {
	t.Helper()
	if _, err := p.store.Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: rule, Key: key, Cost: 1}}, nil); err != nil {
		t.Fatal(err)
	}
	p.counted()
}

// counted has the recorder count what it has in its buffers, before the clock goes on.
func (p *process) counted() { p.recorder.Overview(insight.Last(time.Minute), 1) }

// end ends the process: its file is written a last time.
func (p *process) end(marks ...history.Mark) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	p.file.Run(ended, func() []history.Mark { return slices.Clone(marks) })
}

// read returns the known minutes of a range until now, as TIME=ADMITTED+DENIED, and the rules.
func (p *process) read(t *testing.T, rule string, of, step time.Duration) string {
	t.Helper()
	until := p.recorder.Now().Add(time.Minute).Truncate(time.Minute)
	past, err := p.file.Read(t.Context(), history.Question{Rule: rule, From: until.Add(-of), Until: until, Step: step})
	if err != nil {
		t.Fatal(err)
	}
	if want := int(of / step); len(past.Minutes) != want {
		t.Errorf("%d minutes, want %d", len(past.Minutes), want)
	}
	var words []string
	for _, m := range past.Minutes {
		if !m.Unknown {
			words = append(words, fmt.Sprintf("%s=%d+%d", time.Unix(m.At, 0).UTC().Format("02 15:04"), m.Allowed, m.Denied))
		}
	}
	for _, r := range past.Rules {
		words = append(words, fmt.Sprintf("%s:%d+%d after %d+%d", r.Rule, r.Allowed, r.Denied, r.Before.Allowed, r.Before.Denied))
	}
	return strings.Join(words, " ")
}

// TestFile: what a process has counted, the next one knows: by minutes lately, by ten minutes and by hours
// of long ago, with gaps where nothing ran, and nothing that is older than a week.
func TestFile(t *testing.T) {
	t.Parallel()
	path, now := filepath.Join(t.TempDir(), "history"), start
	first := begin(t, path, &now)
	first.take(t, login, "anna")
	first.take(t, login, "anna")
	now = now.Add(time.Minute)
	first.take(t, login, "bert")
	first.end(history.Mark{At: now.UnixMilli(), Kind: "outage", Text: "the store did not answer"})

	now = now.Add(3 * time.Minute)
	second := begin(t, path, &now)
	second.take(t, login, "carl")
	const lately = "01 12:00=1+1 01 12:01=1+0 01 12:04=1+0"
	// The running minute is known when it is over.
	if got, want := second.read(t, "login", 10*time.Minute, time.Minute), strings.TrimSuffix(lately, " 01 12:04=1+0"); got != want {
		t.Errorf("before the minute is over: %s, want %s", got, want)
	}
	now = now.Add(time.Minute)
	for _, tt := range []struct {
		rule     string
		of, step time.Duration
		want     string
	}{
		{"login", 10 * time.Minute, time.Minute, lately},
		{"other", 10 * time.Minute, time.Minute, "01 12:00=0+0 01 12:01=0+0 01 12:04=0+0"},
		{"", 10 * time.Minute, time.Minute, lately + " login:3+1 after 0+0"},
		{"", 2 * time.Minute, time.Minute, "01 12:04=1+0 login:1+0 after 0+0"},
		{"", 4 * time.Minute, time.Minute, "01 12:04=1+0 login:1+0 after 2+1"},
	} {
		if got := second.read(t, tt.rule, tt.of, tt.step); got != tt.want {
			t.Errorf("%q of %v: %s, want %s", tt.rule, tt.of, got, tt.want)
		}
	}
	marks, _ := second.file.Marks(t.Context(), now.Add(-time.Hour), now)
	if len(marks) != 1 || marks[0].Until < marks[0].At || marks[0].Until > now.UnixMilli() {
		t.Errorf("an outage in which the process ended: %+v", marks)
	}

	now = start.Add(25 * time.Hour)
	second.end()
	third := begin(t, path, &now)
	if got, want := third.read(t, "login", 26*time.Hour, 10*time.Minute), "01 11:51=3+1 02 11:01=0+0"; !strings.HasPrefix(got, want) {
		t.Errorf("a day later: %s, want %s", got, want)
	}
	if got, want := third.read(t, "login", 7*24*time.Hour, time.Hour), "01 11:01=3+1 02 11:01=0+0"; !strings.HasPrefix(got, want) {
		t.Errorf("of a week: %s, want %s", got, want)
	}
	now = start.Add(history.Kept + time.Hour)
	third.end()
	last := begin(t, path, &now)
	if got := last.read(t, "login", history.Kept, time.Hour); strings.Contains(got, "01 12:") {
		t.Errorf("after a week: %s", got)
	}
}

// TestRulesOfFile: a span distinguishes the rules with the most checks, and loses none of the others'.
func TestRulesOfFile(t *testing.T) {
	t.Parallel()
	path, now := filepath.Join(t.TempDir(), "history"), start
	p := begin(t, path, &now)
	const rules = 60
	for i := range rules {
		rule := headgate.MustRule(fmt.Sprintf("rule%02d", i), headgate.PerHour(1000))
		for range i + 1 {
			p.take(t, rule, "anna")
		}
	}
	now = now.Add(time.Minute)
	past, err := p.file.Read(t.Context(), history.Question{From: start, Until: now, Step: time.Minute})
	var sum int64
	names := make([]string, len(past.Rules))
	for i, r := range past.Rules {
		names[i], sum = r.Rule, sum+r.Allowed
	}
	if err != nil || len(names) != 50 || !slices.Contains(names, "(other)") || !slices.Contains(names, "rule59") || slices.Contains(names, "rule10") || sum != rules*(rules+1)/2 {
		t.Errorf("%v, %v: %d checks", err, names, sum)
	}
}

// TestUnreadable: a file that is cut off or somebody else's is named, kept aside, and begun anew.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	now := start
	whole := filepath.Join(t.TempDir(), "history")
	begin(t, whole, &now).end()
	text, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	packed := func(text string) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write([]byte(text))
		_ = w.Close()
		return b.Bytes()
	}
	for name, tt := range map[string]struct {
		text []byte
		want string
	}{
		"cut off":  {text[:len(text)-5], "it is not whole"},
		"foreign":  {[]byte("rules:\n  - name: login\n"), "it is not a history of Headgate"},
		"empty":    {nil, "it is not a history of Headgate"},
		"packed":   {packed("rules: []"), "it is not a history of this version"},
		"a later":  {packed(`{"history_of_headgate":2,"spans":{}}`), "it is not a history of this version"},
		"too much": {packed(strings.Repeat(" ", 64<<20+1)), "more than 64 MiB"},
	} {
		path := filepath.Join(t.TempDir(), "history")
		if err := os.WriteFile(path, tt.text, 0o600); err != nil {
			t.Fatal(err)
		}
		p := begin(t, path, &now)
		if log := p.log.String(); !strings.Contains(log, tt.want) || !strings.Contains(log, path) {
			t.Errorf("%s: the log is %s", name, log)
		}
		p.take(t, login, "dora")
		p.end()
		if got, want := begin(t, path, &now).read(t, "login", time.Minute, time.Minute), "01 12:00=1+0"; got != want {
			t.Errorf("%s: begun anew: %s, want %s", name, got, want)
		}
		if aside, err := os.ReadFile(path + ".unreadable"); err != nil || !bytes.Equal(aside, tt.text) {
			t.Errorf("%s: it was not kept aside: %v", name, err)
		}
	}
}
