package replay_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/internal/routes"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/tune/accesslog"
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

func write(t testing.TB, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// parse makes a policy that ends things by the clock.
func parse(t testing.TB, clock *replay.Clock, text string) *policy.Set {
	t.Helper()
	set, err := config.Parse("test.yaml", []byte(text), policy.Clock(clock.Now), policy.HashKey([]byte("0123456789abcdef")))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return set
}

// run replays logs.
func run(t testing.TB, o replay.Options, read accesslog.Options, names ...string) *replay.Result {
	t.Helper()
	log, err := accesslog.Open(t.Context(), names, read)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}()
	o.Entries = log.Entries()
	r := replay.New(o)
	for {
		s, err := log.Next()
		if errors.Is(err, io.EOF) {
			return r.Result(log.Stats())
		}
		if err != nil {
			t.Fatal(err)
		}
		r.Add(s)
		s.Release()
	}
}

// visit is a line of the log as the oracle reads it.
type visit struct {
	at                       int64
	ip, method, target, user string
	status                   int
}

var combined = regexp.MustCompile(`^(\S+) \S+ (\S+) \[([^\]]+)\] "(\S+) (\S+)[^"]*" (\d+)`)

// visits reads the log slowly, sorts it, and spreads its seconds.
func visits(t testing.TB, data []byte) (all []visit) {
	t.Helper()
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		m := combined.FindStringSubmatch(lines.Text())
		if m == nil {
			t.Fatalf("the oracle does not understand %q", lines.Text())
		}
		when, err := time.Parse("02/Jan/2006:15:04:05 -0700", m[3])
		if err != nil {
			t.Fatal(err)
		}
		status, err := strconv.Atoi(m[6])
		if err != nil {
			t.Fatal(err)
		}
		user := m[2]
		if user == "-" {
			user = ""
		}
		all = append(all, visit{when.UnixMicro(), m[1], m[4], m[5], user, status})
	}
	slices.SortStableFunc(all, func(a, b visit) int { return int(a.at - b.at) })
	for i := 0; i < len(all); {
		n := 1
		for i+n < len(all) && all[i+n].at == all[i].at {
			n++
		}
		first := all[i].at
		for j := range n {
			all[i+j].at = first + int64(j)*1_000_000/int64(n)
		}
		i += n
	}
	return all
}

// randomPolicy writes some policy that the log has something to do with.
func randomPolicy(rng *rand.Rand) string {
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	limit := func() string {
		switch rng.IntN(3) {
		case 0:
			return fmt.Sprintf("%d per %s burst %d", 1+rng.IntN(30), pick("1s", "10s", "1m", "1h"), 1+rng.IntN(60))
		default:
			return fmt.Sprintf("%d per %s", 1+rng.IntN(40), pick("2s", "10s", "1m", "1h", "3h"))
		}
	}
	var b strings.Builder
	b.WriteString("subjects:\n  by: ip\n  table:\n    66.249.73.135: { tier: robot }\n    75.97.9.59: { tier: pro }\n    130.237.218.86: { tier: pro }\n")
	if rng.IntN(3) == 0 {
		b.WriteString("deny:\n  - { name: gone, match: { ip: 46.105.14.0/24 }, until: 2015-05-19T00:00:00Z }\n")
	}
	b.WriteString("rules:\n")
	for i := range 1 + rng.IntN(5) {
		fmt.Fprintf(&b, "  - name: r%d\n", i)
		switch rng.IntN(6) {
		case 0:
			fmt.Fprintf(&b, "    match: { route: %q }\n", pick("GET /blog/*", "GET /presentations/{name}/{rest...}", "/favicon.ico", "GET /"))
		case 1:
			fmt.Fprintf(&b, "    match: { method: %s }\n", pick("GET", "[HEAD, POST]"))
		case 2:
			b.WriteString("    match: { path: /images/* }\n")
		}
		per := "all"
		if rng.IntN(4) > 0 {
			per = pick("[ip]", "[ip/24/64]", "[ip/16/64, method]", "[path]", "[ip, route]")
		}
		fmt.Fprintf(&b, "    per: %s\n", per)
		algorithm := pick("token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_counter")
		fmt.Fprintf(&b, "    algorithm: %s\n", algorithm)
		one := limit
		if algorithm != "token_bucket" && algorithm != "leaky_bucket" {
			one = func() string { text, _, _ := strings.Cut(limit(), " burst"); return text }
		}
		switch rng.IntN(5) {
		case 0:
			fmt.Fprintf(&b, "    limits: { tier: { pro: [%s], robot: [%s], \"*\": [%s, %s] } }\n", one(), one(), one(), one())
		case 1:
			fmt.Fprintf(&b, "    limits: [%s, 3 denials per 1m block 10s up to 1h]\n", one())
		default:
			fmt.Fprintf(&b, "    limits: [%s, %s]\n", one(), one())
		}
		if i%2 == 1 {
			b.WriteString("    overrides:\n      - { match: { ip: 66.249.73.0/24 }, limits: [3 per 10s], until: 2015-05-18T12:00:00Z }\n")
		}
		switch rng.IntN(6) {
		case 0:
			b.WriteString("    mode: shadow\n")
		case 1:
			b.WriteString("    enforce: 50%\n")
		case 2:
			b.WriteString("    give_back_on: [404, 304]\n")
		case 3:
			b.WriteString("    cost: 2\n")
		}
	}
	return b.String()
}

// TestDecisionsAreTheLibrarys: under random rules, every decision about every request of
// the whole log is the one that the library makes under a clock that shows the time of
// the request. The curve of the first requests is what the library denies with other limits.
func TestDecisionsAreTheLibrarys(t *testing.T) {
	data := realLog(t)
	log, all := write(t, data), visits(t, data)
	for seed := range uint64(race.Fewer(25)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			text := randomPolicy(rand.New(rand.NewPCG(seed, 1)))
			var now time.Time
			set, err := config.Parse("test.yaml", []byte(text), policy.Clock(func() time.Time { return now }), policy.HashKey([]byte("0123456789abcdef")))
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			limiter := memory.New(memory.Clock(func() int64 { return now.UnixMicro() }))
			names, problems := routes.New(set, 0)
			if problems != nil {
				t.Fatal(problems)
			}
			clock := new(replay.Clock)
			next, denied := 0, int64(0)
			other := newOther()
			options := replay.Options{Policy: parse(t, clock, text), Clock: clock, Curve: 1000}
			asked := options
			asked.Decided = func(_ *accesslog.Request, got []headgate.Decision, allowed bool) {
				v := all[next]
				next++
				now = time.UnixMicro(v.at)
				path, _, _ := strings.Cut(v.target, "?")
				d := policy.Descriptor{{Name: "ip", Value: v.ip}, {Name: "method", Value: v.method}, {Name: "user", Value: v.user}}
				route := routes.Unmatched
				if p, err := spelling.Read(path, 0); err == nil && (p.Kept == nil || !slices.Contains(set.Entries(), "path")) {
					if found, err := names.Find(&http.Request{Method: v.method, URL: p.URL()}, &p); err == nil {
						route = found
					}
					d = append(d, policy.Entry{Name: "path", Value: p.Text})
				}
				d = append(d, policy.Entry{Name: "route", Value: route})
				checks, err := set.Match(d, 1, nil)
				if errors.Is(err, headgate.ErrDenied) {
					denied++
					if allowed || len(got) != 0 {
						t.Fatalf("request %d: the deny list denies it", next)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				want := headgate.Verdict{Allowed: true}
				if len(checks) > 0 {
					decisions, err := limiter.Take(t.Context(), headgate.OpTake, checks, nil)
					if err != nil {
						t.Fatal(err)
					}
					want = headgate.NewVerdict(decisions)
				}
				if !want.Allowed {
					denied++
				}
				if allowed != want.Allowed || len(got) != len(want.Decisions) {
					t.Fatalf("request %d, %+v: allowed %v by %d decisions, want %v by %d\n%s", next, v, allowed, len(got), want.Allowed, len(want.Decisions), text)
				}
				for i := range got {
					g, w := got[i], want.Decisions[i]
					if g.Rule.Name() != w.Rule.Name() || g.Limit.Slot() != w.Limit.Slot() {
						t.Fatalf("request %d: decision %d is of another limit", next, i)
					}
					g.Rule, g.Limit = w.Rule, w.Limit
					if g != w {
						t.Fatalf("request %d, %+v, decision %d:\ngot  %+v\nwant %+v\n%s", next, v, i, g, w, text)
					}
				}
				if next <= 1000 {
					other.take(t, checks, now, func(c *headgate.Check) bool { return set.Charged(c, v.status) })
				}
				for i := range checks {
					if want.Allowed && !set.Charged(&checks[i], v.status) {
						c := checks[i]
						c.At = want.Decisions[0].At
						if _, err := limiter.Take(t.Context(), headgate.OpRefund, []headgate.Check{c}, nil); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			result := run(t, asked, accesslog.Options{}, log)
			other.compare(t, result.Rules)
			// Nobody asks for the decisions, and so only those about denied requests are made.
			options.Policy = parse(t, clock, text)
			if quiet := run(t, options, accesslog.Options{}, log); !reflect.DeepEqual(counts(quiet), counts(result)) {
				t.Errorf("without Decided:\n%+v\nwith it:\n%+v", counts(quiet), counts(result))
			}
			if next != len(all) || result.Requests != int64(len(all)) || result.Denied != denied || result.Admitted+result.Denied != result.Requests {
				t.Errorf("%d requests of %d, %d denied and %d admitted; want %d denied", result.Requests, len(all), result.Denied, result.Admitted, denied)
			}
		})
	}
}

// other is what the library denies with other limits, each rule by itself.
type other struct {
	now    int64
	store  *memory.Store
	denied map[string]int64 // by rule and factor
	bound  map[string]int64
	rules  map[string]*headgate.Rule // by rule, factor and limits
}

func newOther() *other {
	o := &other{denied: make(map[string]int64), bound: make(map[string]int64), rules: make(map[string]*headgate.Rule)}
	o.store = memory.New(memory.Clock(func() int64 { return o.now }))
	return o
}

func (o *other) take(t *testing.T, checks []headgate.Check, now time.Time, charged func(*headgate.Check) bool) {
	t.Helper()
	o.now = now.UnixMicro()
	for _, c := range checks {
		o.bound[c.Rule.Name()]++
		for _, factor := range []float64{0.25, 0.5, 0.75, 1, 1.5, 2, 4} {
			name := fmt.Sprint(c.Rule.Name(), "*", factor)
			id := fmt.Sprintf("%s %p", name, c.Rule)
			if o.rules[id] == nil {
				limits := slices.Clone(c.Rule.Limits())
				for i := range limits {
					times := func(n int64) int64 { return max(1, int64(math.Round(float64(n)*factor))) }
					if l := &limits[i]; l.Algorithm != headgate.Penalty {
						l.Count = times(l.Count)
						if l.Burst > 0 {
							l.Burst = times(l.Burst)
						}
					}
				}
				rule, err := headgate.NewRule(name, limits...)
				if err != nil {
					t.Fatal(err)
				}
				o.rules[id] = rule
			}
			scaled := []headgate.Check{{Rule: o.rules[id], Key: c.Key, Cost: c.Cost}}
			decisions, err := o.store.Take(t.Context(), headgate.OpTake, scaled, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !headgate.NewVerdict(decisions).Allowed {
				o.denied[name]++
			} else if !charged(&c) {
				scaled[0].At = decisions[0].At
				if _, err := o.store.Take(t.Context(), headgate.OpRefund, scaled, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func (o *other) compare(t *testing.T, rules []replay.Rule) {
	t.Helper()
	for _, r := range rules {
		if r.CurveRequests != o.bound[r.Rule] {
			t.Errorf("%s: the curve is of %d requests, want %d", r.Rule, r.CurveRequests, o.bound[r.Rule])
		}
		for _, p := range r.Curve {
			if want := o.denied[fmt.Sprint(r.Rule, "*", p.Factor)]; p.Denied != want {
				t.Errorf("%s with %g times its limits: %d of %d denied, want %d", r.Rule, p.Factor, p.Denied, r.CurveRequests, want)
			}
		}
	}
}

// counts are the result without the estimates, which differ from run to run.
func counts(r *replay.Result) *replay.Result {
	for i := range r.Rules {
		r.Rules[i].Keys, r.Rules[i].KeysAlive, r.Rules[i].RedisBytes = 0, 0, 0
	}
	return r
}

// TestModels: rules that count tokens and money are charged what the log says that calls have used. A call
// of which it says nothing does not bind them, and one whose model has no price is refused.
func TestModels(t *testing.T) {
	const text = `
models:
  - { model: "m*", input: 1, cached_input: 0.1, output: 2 }
rules:
  - { name: calls, per: [user], limits: [100 per 1h] }
  - { name: tokens, per: [user], counts: tokens, limits: [1000 per 1h] }
  - { name: budget, per: [user, model], counts: money, algorithm: fixed_window, limits: [1500 per calendar month] }
`
	var data strings.Builder
	line := func(second int, user, model, usage string) {
		fmt.Fprintf(&data, `{"time":"2026-11-24T10:00:%02d.000Z","remote_addr":"192.0.2.1","method":"POST","path":"/v1/chat/completions","status":200,"remote_user":%q,"call":{"model":%q%s}}`+"\n", second, user, model, usage)
	}
	line(1, "ada", "m1", `,"in":400,"out":400`)       // 800 tokens, 1200 millionths
	line(2, "ada", "m1", `,"in":200,"out":1`)         // 1001 tokens would be too many
	line(3, "ada", "m2", `,"in":200,"out":0`)         // 1000
	line(4, "bob", "m1", `,"in":900,"out":10`)        // 920
	line(5, "bob", "m1", `,"in":0,"out":0`)           // nothing
	line(6, "bob", "m1", `,"in":"-","out":"-"`)       // not known
	line(7, "eve", "other", `,"in":1,"out":1`)        // no price
	line(8, "cid", "m1", `,"in":10,"out":746`)        // 1502 millionths
	line(9, "cid", "m1", `,"in":80,"c":80,"out":746`) // and as many as fit, of the cache
	maps := []accesslog.Map{{Name: "model", Field: "call.model"}, {Name: "input_tokens", Field: "call.in"}, {Name: "cached_input_tokens", Field: "call.c"}, {Name: "output_tokens", Field: "call.out"}}
	var admitted []bool
	set := parse(t, new(replay.Clock), text)
	result := run(t, replay.Options{Policy: set, Decided: func(_ *accesslog.Request, _ []headgate.Decision, allowed bool) {
		admitted = append(admitted, allowed)
	}}, accesslog.Options{Format: "json", Maps: maps}, write(t, []byte(data.String())))
	if want := []bool{true, false, true, true, true, true, false, false, true}; !slices.Equal(admitted, want) {
		t.Errorf("admitted %v, want %v", admitted, want)
	}
	m := result.Models
	if m.Calls != 8 || m.Unknown != 1 || m.InputTokens != 1791 || m.OutputTokens != 1904 || fmt.Sprint(m.Money) != "0.005524" {
		t.Errorf("the calls have used %+v", m)
	}
	if result.Rules[1].Requests != 6 || result.Rules[1].Denied != 1 || result.Rules[2].Denied != 1 || len(result.Warnings) > 0 {
		t.Errorf("rules %+v, warnings %q", result.Rules, result.Warnings)
	}
	result = run(t, replay.Options{Policy: set}, accesslog.Options{Format: "json", Maps: maps[:1]}, write(t, []byte(data.String())))
	if len(result.Warnings) != 3 || !strings.Contains(result.Warnings[0], "--map input_tokens=FIELD") {
		t.Errorf("without tokens: %q", result.Warnings)
	}
}
