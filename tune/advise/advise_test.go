package advise_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/policy/lint"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/tune/accesslog"
	"github.com/headgate/headgate/tune/advise"
	"github.com/headgate/headgate/tune/replay"
)

// realLog is the traffic of a web site; see testdata/README.md.
func realLog(t testing.TB) []byte {
	t.Helper()
	f, err := os.Open("../testdata/access.log.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// each reads logs.
func each(t testing.TB, o accesslog.Options, names []string, begin func(entries []string) func(*accesslog.Stretch)) accesslog.Stats {
	t.Helper()
	log, err := accesslog.Open(t.Context(), names, o)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	add := begin(log.Entries())
	for {
		s, err := log.Next()
		if errors.Is(err, io.EOF) {
			return log.Stats()
		}
		if err != nil {
			t.Fatal(err)
		}
		add(s)
		s.Release()
	}
}

func observe(t testing.TB, o advise.Options, read accesslog.Options, names ...string) (*advise.Advice, error) {
	t.Helper()
	var b *advise.Observer
	each(t, read, names, func(entries []string) func(*accesslog.Stretch) {
		o.Entries = entries
		var err error
		if b, err = advise.New(o); err != nil {
			t.Fatal(err)
		}
		return b.Add
	})
	return b.Advise()
}

func replayed(t testing.TB, text string, read accesslog.Options, names ...string) *replay.Result {
	t.Helper()
	set, err := config.Parse("advice.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if w := lint.Warnings(set); len(w) > 0 {
		t.Errorf("lint says %v of\n%s", w, text)
	}
	var r *replay.Replay
	stats := each(t, read, names, func(entries []string) func(*accesslog.Stretch) {
		r = replay.New(replay.Options{Policy: set, Entries: entries, Top: 100_000})
		return r.Add
	})
	return r.Result(stats)
}

// plant writes the requests of abusers into a log of their own: browsers, by their header,
// that ask a number of times a minute, for some hours each.
func plant(t testing.TB, abusers, perMinute, hours int) []byte {
	t.Helper()
	var b bytes.Buffer
	begin := time.Date(2015, 5, 18, 0, 0, 0, 0, time.UTC)
	step := time.Minute / time.Duration(perMinute)
	for i := range hours * 60 * perMinute {
		at := begin.Add(time.Duration(i) * step)
		for a := range abusers {
			fmt.Fprintf(&b, "198.51.100.%d - - [%s] \"GET /item/%d HTTP/1.1\" 200 1 \"-\" \"Mozilla/5.0 (X11; Linux x86_64) Chrome/32.0\"\n", a+1, at.Add(time.Duration(a)*time.Hour).Truncate(time.Second).Format("02/Jan/2006:15:04:05 -0700"), i)
		}
	}
	lines := slices.Collect(bytes.Lines(b.Bytes()))
	slices.SortStableFunc(lines, func(x, y []byte) int {
		return strings.Compare(string(x[bytes.IndexByte(x, '['):bytes.IndexByte(x, ']')]), string(y[bytes.IndexByte(y, '['):bytes.IndexByte(y, ']')]))
	})
	return bytes.Join(lines, nil)
}

// TestPlantedAbusers: of the requests of honest clients, those of the real log, at most one
// in a thousand is denied, and of what abusers send beyond the most that any honest client
// sends in an hour, at least 95 %.
func TestPlantedAbusers(t *testing.T) {
	honest := write(t, "honest.log", realLog(t))
	for _, tt := range []struct{ abusers, perMinute int }{{5, 60}, {12, 40}, {30, 30}}[:race.Fewer(3)] {
		t.Run(fmt.Sprintf("%d at %d a minute", tt.abusers, tt.perMinute), func(t *testing.T) {
			const hours = 4
			planted := write(t, "planted.log", plant(t, tt.abusers, tt.perMinute, hours))
			a, err := observe(t, advise.Options{}, accesslog.Options{}, honest, planted)
			if err != nil {
				t.Fatal(err)
			}
			if a.Limits[0].Outliers < tt.abusers {
				t.Errorf("%d outliers were found of %d abusers", a.Limits[0].Outliers, tt.abusers)
			}
			r := replayed(t, a.YAML(nil, nil), accesslog.Options{}, honest, planted)
			var abused, abusedDenied, honestDenied int64
			for _, c := range r.Clients {
				if strings.HasPrefix(c.Client, "198.51.100.") {
					abused, abusedDenied = abused+c.Requests, abusedDenied+c.Denied
				} else {
					honestDenied += max(c.Denied, c.Bunched)
				}
			}
			honestAll := r.Requests - abused
			mostHonest := a.Limits[0].Windows[len(a.Limits[0].Windows)-1].Top
			excess := abused - int64(tt.abusers)*hours*mostHonest
			t.Logf("limit %s; honest: %d of %d denied (%.3f %%); abusers: %d of %d denied, %.1f %% of their excess of %d", &a.Limits[0], honestDenied, honestAll, 100*float64(honestDenied)/float64(honestAll), abusedDenied, abused, 100*float64(abusedDenied)/float64(excess), excess)
			if honestDenied*1000 > honestAll {
				t.Errorf("%d of %d honest requests are denied", honestDenied, honestAll)
			}
			if float64(abusedDenied) < 0.95*float64(excess) {
				t.Errorf("%d of an excess of %d are denied", abusedDenied, excess)
			}
			p := a.Promise(r, nil)
			if !p.Holds() || p.People > honestAll || p.Denied != r.Interval.Most() {
				t.Errorf("the promise is %+v", p)
			}
			if text := a.YAML(&p, nil); !strings.Contains(text, fmt.Sprintf("deny %d of %d requests", p.Denied, p.Requests)) || !strings.Contains(text, "an outlier") {
				t.Errorf("the policy does not tell the promise:\n%s", text)
			} else if again := replayed(t, text, accesslog.Options{}, honest, planted); again.Denied != r.Denied {
				t.Errorf("the policy with the promise denies %d, without it %d", again.Denied, r.Denied)
			}
		})
	}
}

func TestRefusesWithoutEvidence(t *testing.T) {
	data := realLog(t)
	lines := slices.Collect(bytes.Lines(data))
	var few []byte
	for _, line := range lines {
		if bytes.HasPrefix(line, []byte("75.97.9.59 ")) || bytes.HasPrefix(line, []byte("130.237.218.86 ")) {
			few = append(few, line...)
		}
	}
	for _, tt := range []struct {
		name string
		data []byte
		per  string
		want string
	}{
		{"too short", bytes.Join(lines[:500], nil), "ip", "must cover at least 24h0m0s"},
		{"too few clients", few, "ip", "clients a day that are no robots, and must have at least 50"},
		{"nobody", data, "user", "have no user"},
		{"nothing", []byte("\n"), "ip", "no requests"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, err := observe(t, advise.Options{Per: tt.per}, accesslog.Options{Format: "combined"}, write(t, "log", tt.data))
			var missing *advise.MissingError
			if !errors.As(err, &missing) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, %v; want what is missing: %s", a, err, tt.want)
			}
		})
	}
}

// TestRoutesAndTiers: limits by route, and by a tier that the log has.
func TestRoutesAndTiers(t *testing.T) {
	name := write(t, "log", realLog(t))
	read := accesslog.Options{Format: `$remote_addr - $remote_user [$time_local] "$request" $status $size "$referer" "$agent"`, Maps: []accesslog.Map{{Name: "tier", Field: "status"}}}
	a, err := observe(t, advise.Options{Tariff: "tier", Routes: []string{"GET /presentations/", "GET /favicon.ico", "POST /nobody"}}, read, name)
	if err != nil {
		t.Fatal(err)
	}
	text := a.YAML(nil, nil)
	r := replayed(t, text, read, name)
	if len(r.Rules) != 3 || r.Rules[0].Requests != 10_000 || len(r.Rules[0].Tiers) < 4 || r.Rules[1].Requests == 0 {
		t.Errorf("rules %+v of\n%s", r.Rules, text)
	}
	if !strings.Contains(text, "No limit: it has 0 clients") {
		t.Errorf("it is not said why there is a limit missing:\n%s", text)
	}
}

// TestHostileNames: what clients call themselves stays within the comments.
func TestHostileNames(t *testing.T) {
	a, err := observe(t, advise.Options{}, accesslog.Options{}, write(t, "log", realLog(t)))
	if err != nil {
		t.Fatal(err)
	}
	p := advise.Promise{Requests: 1, Clients: []replay.Client{{Client: "x\nrules: []\u2028\u0085\r#", Requests: 1, Denied: 1}}, Outliers: []bool{true}}
	if set, err := config.Parse("a.yaml", []byte(a.YAML(&p, nil))); err != nil || len(set.Rules()) != 1 {
		t.Errorf("the policy is broken: %v\n%s", err, a.YAML(&p, nil))
	}
}

func TestCapacity(t *testing.T) {
	c := advise.Capacity{Sustainable: 200, Operations: map[string]time.Duration{"GET /report": 400 * time.Millisecond, "GET /export/{id}": 5 * time.Second}, Cheap: 20 * time.Millisecond}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	if c.Rate() != 140 || c.Burst() != 300 || c.Cost("GET /report") != 20 || c.Cost("GET /export/{id}") != 250 || c.Permits("GET /report") != 3 {
		t.Errorf("rate %d, burst %d, costs %d and %d, permits %d", c.Rate(), c.Burst(), c.Cost("GET /report"), c.Cost("GET /export/{id}"), c.Permits("GET /report"))
	}
	set, err := config.Parse("capacity.yaml", []byte("rules:\n"+c.Rules()))
	if err != nil {
		t.Fatalf("%v\n%s", err, c.Rules())
	}
	if w := lint.Warnings(set); len(w) > 0 {
		t.Errorf("lint says %v of\n%s", w, c.Rules())
	}
	wrong := advise.Capacity{Sustainable: 0, Use: 0.9, Operations: map[string]time.Duration{"x": 0}}
	if err := wrong.Check(); err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("got %v, want four mistakes", err)
	}
	if n, err := advise.ReadLoad([]byte(`{"sustainable_per_second": 198.5}`)); err != nil || n != 198.5 {
		t.Errorf("got %g, %v", n, err)
	}
	for _, text := range []string{"", "{}", `{"sustainable_per_second": -1}`} {
		if _, err := advise.ReadLoad([]byte(text)); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

// TestTokens: limits on tokens come from those that clients have used, leave the clients alone on the same
// log, and deny one who uses ten times as many. A log without tokens is not enough.
func TestTokens(t *testing.T) {
	var data strings.Builder
	begin := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	for i := range 30 * 60 {
		user, tokens := i%60, 1000+i%60
		if user == 59 {
			tokens = 10_000
		}
		fmt.Fprintf(&data, `{"time":%q,"remote_addr":"192.0.2.1","method":"POST","path":"/v1/messages","status":200,"remote_user":"user %d","in":%d,"out":%d}`+"\n",
			begin.Add(time.Duration(i)*time.Minute).Format("2006-01-02T15:04:05.000Z"), user, tokens, tokens)
	}
	path := write(t, "usage.log", []byte(data.String()))
	read := accesslog.Options{Format: "json", Maps: []accesslog.Map{{Name: "input_tokens", Field: "in"}, {Name: "output_tokens", Field: "out"}}}
	a, err := observe(t, advise.Options{Per: "user", Counts: models.Tokens}, read, path)
	if err != nil {
		t.Fatal(err)
	}
	text := a.YAML(nil, nil)
	if l := a.Limits[0]; l.Outliers != 1 || l.People != 59 || l.Windows[0].Chosen != 2*1058 || !strings.Contains(text, "counts: tokens") || !strings.Contains(text, "name: per-user-tokens\n") {
		t.Errorf("advice %+v\n%s", l, text)
	}
	r := replayed(t, text, read, path)
	for _, c := range r.Clients {
		if (c.Denied > 0) != (c.Client == "user 59") {
			t.Errorf("%s: %d of %d are denied", c.Client, c.Denied, c.Requests)
		}
	}
	var missing *advise.MissingError
	if _, err := observe(t, advise.Options{Per: "user", Counts: models.Tokens}, accesslog.Options{Format: "json"}, path); !errors.As(err, &missing) || !strings.Contains(err.Error(), "no line has tokens") {
		t.Errorf("without tokens: %v", err)
	}
}
