package insight_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/telemetry/insight"
)

// clock is a clock that tests set.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func start() *clock { return &clock{now: time.Unix(1_800_000_000, 0)} }

func newRecorder(t *testing.T, o insight.Options) *insight.Recorder {
	t.Helper()
	r := insight.New(o)
	t.Cleanup(r.Close)
	return r
}

// decided is what a store answers for one limit.
func decided(rule *headgate.Rule, allowed bool, remaining int64) []headgate.Decision {
	return []headgate.Decision{{Rule: rule, Limit: &rule.Limits()[0], Allowed: allowed, Remaining: remaining, RetryAfter: 1500 * time.Microsecond, At: 1_800_000_000_000_000}}
}

func TestThroughAStore(t *testing.T) {
	t.Parallel()
	c := start()
	r := newRecorder(t, insight.Options{Now: c.Now})
	store := headgate.Observe(memory.New(memory.Clock(func() int64 { return c.Now().UnixMicro() })), r.Hooks())
	login := headgate.MustRule("login", headgate.Sliding(3, time.Minute))
	all := headgate.MustRule("all", headgate.PerMinute(1000))
	ctx := context.Background()
	for i := range 10 {
		for _, key := range []string{"alice", "bob"} {
			if key == "bob" && i >= 2 {
				continue
			}
			checks := []headgate.Check{{Rule: login, Key: key}, {Rule: all}}
			if _, err := store.Take(ctx, headgate.OpTake, checks, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := store.Take(ctx, headgate.OpPeek, checks, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	o := r.Overview(insight.Last(10*time.Minute), 10)
	if got := o.Minutes[len(o.Minutes)-1].Counts; got != (insight.Counts{Allowed: 5, Denied: 7}) {
		t.Errorf("requests: %+v", got)
	}
	if len(o.Rules) != 2 || o.Rules[0].Rule != "login" || o.Rules[0].Counts != (insight.Counts{Allowed: 5, Denied: 7}) {
		t.Errorf("rules: %+v", o.Rules)
	}
	if o.Rules[1].Counts != (insight.Counts{Allowed: 5, Uncharged: 7}) {
		t.Errorf("the rule that admits what another one denies: %+v", o.Rules[1])
	}
	rule, ok := r.Rule("login", insight.Last(10*time.Minute))
	if !ok || len(rule.Denied.Keys) != 1 || rule.Denied.Keys[0].Key.Raw != "alice" || rule.Denied.Keys[0].Count != 7 || rule.Denied.Keys[0].Used != 1000 {
		t.Errorf("denied: %+v", rule.Denied)
	}
	if len(rule.Use.Keys) != 2 || rule.Use.Keys[0].Count != 3 || rule.Use.Total != 5 || rule.Use.Absent != 0 {
		t.Errorf("use: %+v", rule.Use)
	}
	if len(rule.Near.Keys) != 1 || rule.Near.Keys[0].Key.Raw != "alice" {
		t.Errorf("near: %+v", rule.Near)
	}
	if len(rule.Limits) != 1 || rule.Limits[0] != (insight.LimitCounts{Limit: "3 per 1m", Denied: 7}) {
		t.Errorf("limits: %+v", rule.Limits)
	}
	if _, ok := r.Rule("nothing", insight.Last(time.Minute)); ok {
		t.Error("a rule that was never used is reported")
	}
	denials, lost := r.Denials(0, 10)
	if len(denials) != 1 || lost != 0 {
		t.Fatalf("denials within one second: %+v, %d lost", denials, lost)
	}
	if d := denials[0]; d.Rule != "login" || d.Key.Raw != "alice" || d.Limit != "3 per 1m" || d.Remaining != 0 || d.Capacity != 3 ||
		d.RetryAfterMS != 60_000 || d.At != c.Now().UnixMilli() || d.Times != 1 || d.Source != "store" || d.Shadow {
		t.Errorf("the denial: %+v", d)
	}
	if o.Left.Events != 6 {
		t.Errorf("%d events were left out", o.Left.Events)
	}
}

// TestAlike: of ten thousand keys that do the same, none is at the top; a key that does more than
// all others is.
func TestAlike(t *testing.T) {
	r := newRecorder(t, insight.Options{Now: start().Now})
	rule := headgate.MustRule("r", headgate.PerMinute(100))
	door := r.Door("")
	use := func(key string) {
		door.Decided(1, []headgate.Check{{Rule: rule, Key: key, Cost: 1}}, decided(rule, true, 50))
	}
	for round := range 5 {
		for i := range 10_000 {
			use(fmt.Sprint((i*7 + round) % 10_000))
		}
	}
	if got, _ := r.Rule("r", insight.Last(time.Minute)); !got.Use.Uniform() {
		t.Errorf("the keys are not said to be alike: %+v", got.Use.Keys[:3])
	}
	for range 2000 {
		use("busy")
	}
	if got, _ := r.Rule("r", insight.Last(time.Minute)); got.Use.Uniform() {
		t.Errorf("one key is far ahead, and all are said to be alike: %+v", got.Use.Keys[:3])
	}
	if (&insight.Top{}).Uniform() {
		t.Error("no keys are said to be alike")
	}
}

func TestShadowTiersDoors(t *testing.T) {
	t.Parallel()
	c := start()
	pro := headgate.MustRule("api", headgate.PerMinute(100))
	free := headgate.MustRule("api", headgate.PerMinute(10))
	r := newRecorder(t, insight.Options{Now: c.Now, Tier: func(rule *headgate.Rule) string {
		return map[*headgate.Rule]string{pro: "pro", free: "*"}[rule]
	}})
	door := r.Door("grpc")
	take := func(rule *headgate.Rule, key string, shadow bool, allowed bool) {
		d := decided(rule, allowed, 5)
		d[0].Shadow = shadow
		door.Decided(3, []headgate.Check{{Rule: rule, Key: key, Cost: 2, Shadow: shadow}}, d)
	}
	take(pro, "p", false, true)
	take(free, "f", false, true)
	take(free, "f", true, false)
	rule, _ := r.Rule("api", insight.Last(time.Minute))
	want := []insight.TierCounts{{Tier: "*", Counts: insight.Counts{Allowed: 1, Shadow: 1}}, {Tier: "pro", Counts: insight.Counts{Allowed: 1}}}
	if fmt.Sprint(rule.Tiers) != fmt.Sprint(want) {
		t.Errorf("tiers: %+v", rule.Tiers)
	}
	if rule.Use.Total != 4 || len(rule.Shadow.Keys) != 1 || rule.Shadow.Keys[0].Tier != "*" {
		t.Errorf("%+v", rule)
	}
	o := r.Overview(insight.Last(time.Minute), 1)
	if len(o.Doors) != 1 || o.Doors[0] != (insight.DoorCounts{Door: "grpc", Counts: insight.Counts{Allowed: 3, Shadow: 1}}) {
		t.Errorf("doors: %+v", o.Doors)
	}
	d, _ := r.Denials(0, 1)
	if len(d) != 1 || !d[0].Shadow || d[0].Door != "grpc" || d[0].Version != 3 || d[0].Tier != "*" || d[0].RetryAfterMS != 2 {
		t.Errorf("the denial: %+v", d)
	}
}

// TestRangesAreBounds compares reports of every range with true counts.
func TestRangesAreBounds(t *testing.T) {
	t.Parallel()
	c := start()
	r := newRecorder(t, insight.Options{Now: c.Now})
	door := r.Door("")
	rule := headgate.MustRule("r", headgate.PerMinute(1000))
	random := rand.New(rand.NewPCG(1, 2))
	type use struct {
		at  int64
		key string
	}
	var all []use
	for range 150 { // minutes
		for range 300 {
			key := fmt.Sprint(int(random.ExpFloat64() * 400))
			door.Decided(0, []headgate.Check{{Rule: rule, Key: key}}, decided(rule, true, 900))
			all = append(all, use{c.Now().Unix(), key})
		}
		r.Denials(0, 0) // The records belong to the minute in which they are counted.
		c.add(time.Minute)
	}
	for _, of := range []time.Duration{time.Minute, 15 * time.Minute, time.Hour, insight.Kept} {
		report, _ := r.Rule("r", insight.Last(of))
		truth := make(map[string]int64)
		var total int64
		for _, u := range all {
			if u.at >= report.Begin {
				truth[u.key]++
				total++
			}
		}
		if report.Use.Total != total {
			t.Errorf("%v: the total is %d, and %d is said", of, total, report.Use.Total)
		}
		listed := make(map[string]bool)
		for _, k := range report.Use.Keys {
			listed[k.Key.Raw] = true
			if is := truth[k.Key.Raw]; k.Count-k.Error > is || is > k.Count {
				t.Errorf("%v: %q has %d, and %d with an error of %d is said", of, k.Key.Raw, is, k.Count, k.Error)
			}
		}
		for key, is := range truth {
			if !listed[key] && is > report.Use.Absent {
				t.Errorf("%v: %q has %d and is not listed, and absent ones have at most %d", of, key, is, report.Use.Absent)
			}
		}
	}
}

func TestMinutesAndHeat(t *testing.T) {
	t.Parallel()
	c := start()
	r := newRecorder(t, insight.Options{Now: c.Now})
	door := r.Door("")
	rule := headgate.MustRule("r", headgate.PerMinute(10))
	take := func(key string, n int, allowed bool) {
		for range n {
			door.Decided(0, []headgate.Check{{Rule: rule, Key: key}}, decided(rule, allowed, 9))
		}
	}
	take("a", 3, true)
	r.Overview(insight.Last(time.Minute), 1) // The records belong to the minute in which they are counted.
	c.add(time.Minute)
	take("a", 2, true)
	take("b", 4, false)
	h, ok := r.Heat("r", insight.Last(5*time.Minute), 10)
	if !ok || len(h.Rows) != 2 || fmt.Sprint(h.Rows[0].Use) != "[0 0 0 3 2]" || fmt.Sprint(h.Rows[1].Denied) != "[0 0 0 0 4]" {
		t.Errorf("the heat: %+v", h)
	}
	if h.Begin+4*60 != c.Now().Unix()/60*60 {
		t.Errorf("it begins at %d, and it is %d", h.Begin, c.Now().Unix())
	}
	o := r.Overview(insight.Last(time.Minute), 5)
	if o.Rules[0].Counts != (insight.Counts{Allowed: 2, Denied: 4}) || o.Rules[0].Before != (insight.Counts{Allowed: 3}) {
		t.Errorf("%+v", o.Rules[0])
	}
	c.add(3 * time.Hour)
	if o := r.Overview(insight.Last(insight.Kept), 5); o.All != 0 || o.Bytes != 0 {
		t.Errorf("after three hours without use there are %d rules, of %d bytes", o.All, o.Bytes)
	}
	take("a", 1, true)
	if o := r.Overview(insight.Last(insight.Kept), 5); o.All != 1 || o.Rules[0].Counts != (insight.Counts{Allowed: 1}) {
		t.Errorf("a rule that comes back has %+v", o.Rules)
	}
}

// TestLargeUse: a key that uses more than 2^32 units in a minute, bytes or money, is told as it is, in
// the present minute and in a past one.
func TestLargeUse(t *testing.T) {
	t.Parallel()
	c := start()
	r := newRecorder(t, insight.Options{Now: c.Now})
	door := r.Door("")
	rule := headgate.MustRule("r", headgate.PerMinute(headgate.MaxCount))
	const cost = 10<<30 + 1
	for minute := range int64(2) {
		for range 3 {
			door.Decided(0, []headgate.Check{{Rule: rule, Key: "k", Cost: cost}}, decided(rule, minute == 0, 9))
		}
		h, ok := r.Heat("r", insight.Last(2*time.Minute), 10)
		if want := []string{"[[0 32212254723] [0 0]]", "[[32212254723 0] [0 32212254723]]"}[minute]; !ok || len(h.Rows) != 1 || fmt.Sprint([][]int64{h.Rows[0].Use, h.Rows[0].Denied}) != want {
			t.Errorf("minute %d: the heat is %+v, want %s", minute, h, want)
		}
		asked := r.Key("r", "k").Asked
		if last := asked[len(asked)-1-int(minute):]; fmt.Sprint(last) != []string{"[32212254723]", "[32212254723 32212254723]"}[minute] {
			t.Errorf("minute %d: %v were asked for", minute, last)
		}
		c.add(time.Minute)
	}
}

// TestMemory fills everything there is with the longest keys.
func TestMemory(t *testing.T) {
	t.Parallel()
	c := start()
	r := newRecorder(t, insight.Options{Now: c.Now})
	door := r.Door("")
	rule := headgate.MustRule("r", headgate.PerMinute(10))
	tail := strings.Repeat("x", headgate.MaxKey-12)
	var most int64
	for range 130 {
		for i := range 1000 {
			d := decided(rule, i%3 == 0, 1)
			d[0].Shadow = i%3 == 1
			key := fmt.Sprintf("%012d%s", i, tail)
			door.Decided(0, []headgate.Check{{Rule: rule, Key: key, Shadow: d[0].Shadow}}, d)
		}
		most = max(most, r.Overview(insight.Last(time.Minute), 1).Bytes)
		c.add(time.Minute)
	}
	if most > insight.MaxRuleBytes || most < insight.MaxRuleBytes/3 {
		t.Errorf("one rule takes %d bytes, and may take %d", most, insight.MaxRuleBytes)
	}
	report, _ := r.Rule("r", insight.Last(insight.Kept))
	if len(report.Use.Keys) == 0 || report.Use.Total == 0 {
		t.Errorf("nothing is reported of it: %+v", report.Use)
	}
}

func TestManyRules(t *testing.T) {
	t.Parallel()
	c := start()
	const bound = 8 << 20
	r := newRecorder(t, insight.Options{Now: c.Now, MaxBytes: bound})
	door := r.Door("")
	for i := range 10_000 {
		rule := headgate.MustRule(fmt.Sprintf("rule-%d", i), headgate.PerMinute(10))
		for j := range 3 {
			door.Decided(0, []headgate.Check{{Rule: rule, Key: fmt.Sprint(j)}}, decided(rule, true, 1))
		}
	}
	o := r.Overview(insight.Last(time.Minute), 100)
	if o.Bytes > bound || o.Bytes < bound/2 {
		t.Errorf("10,000 rules take %d bytes", o.Bytes)
	}
	if o.All == 0 || o.All == 10_000 || len(o.Rules) != 100 || o.Left.Decisions != 3*int64(10_000-o.All) {
		t.Errorf("%d rules are followed, and %+v is left out", o.All, o.Left)
	}
	if got := o.Minutes[len(o.Minutes)-1].Allowed; got != 30_000 {
		t.Errorf("%d requests are counted", got)
	}
}

func TestDenialsAreOneASecond(t *testing.T) {
	t.Parallel()
	c := start()
	r := newRecorder(t, insight.Options{Now: c.Now, Events: 4})
	door := r.Door("")
	rule := headgate.MustRule("r", headgate.PerMinute(10))
	deny := func(key string, n int) {
		for range n {
			door.Decided(0, []headgate.Check{{Rule: rule, Key: key}}, decided(rule, false, 0))
		}
		r.Denials(0, 0) // They are counted now.
	}
	for range 6 {
		deny("a", 5)
		c.add(time.Second)
	}
	list, lost := r.Denials(1, 100)
	if len(list) != 4 || lost != 1 || list[0].Seq != 3 || list[3].Seq != 6 || list[3].Times != 5 {
		t.Errorf("%d denials, %d lost: %+v", len(list), lost, list)
	}
	if list, _ := r.Denials(-1, 2); len(list) != 2 || list[1].Seq != 6 {
		t.Errorf("the last two: %+v", list)
	}
	deny("b", 1)
	if list := r.Search(func(_, key string) bool { return key == "a" }, 10); len(list) != 3 || list[0].Seq != 6 {
		t.Errorf("those of one key: %+v", list)
	}
}

// TestConcurrent has every decision counted, whoever makes it.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, insight.Options{})
	rule := headgate.MustRule("r", headgate.PerMinute(10))
	const callers, each = 8, 5000
	var all sync.WaitGroup
	for i := range callers {
		door := r.Door(fmt.Sprint(i))
		all.Go(func() {
			for j := range each {
				door.Decided(0, []headgate.Check{{Rule: rule, Key: fmt.Sprint(j % 100)}}, decided(rule, j%2 == 0, 9))
				if j%1000 == 0 {
					r.Rule("r", insight.Last(time.Hour))
					r.Denials(0, 10)
				}
			}
		})
	}
	all.Wait()
	report, _ := r.Rule("r", insight.Last(insight.Kept))
	if report.Use.Total != callers*each/2 || report.Denied.Total != callers*each/2 {
		t.Errorf("%d and %d of %d", report.Use.Total, report.Denied.Total, callers*each)
	}
	var sum insight.Counts
	for _, d := range r.Overview(insight.Last(insight.Kept), 1).Doors {
		sum.Add(d.Counts)
	}
	if sum != (insight.Counts{Allowed: callers * each / 2, Denied: callers * each / 2}) {
		t.Errorf("requests: %+v", sum)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"":                       "",
		"alice":                  "alice",
		"naïve 日本":               "naïve 日本",
		"a\x00b\x1b[31m":         `a\x00b\x1b[31m`,
		"\xff\xfe":               `\xff\xfe`,
		"\u202egpj.exe":          `\u202egpj.exe`,
		`\x00`:                   `\\x00`,
		"</script>":              "</script>",
		"\U000e0001":             `\U000e0001`,
		strings.Repeat("k", 400): strings.Repeat("k", 161) + "…",
	} {
		n := insight.Name{Raw: raw}
		if got := n.Text(); got != want {
			t.Errorf("%q is shown as %q, not %q", raw, got, want)
		}
		b, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		var back insight.Name
		if err := json.Unmarshal(b, &back); err != nil || back != n {
			t.Errorf("%q came back as %q: %v", raw, back.Raw, err)
		}
	}
	if _, err := insight.ParseID("!"); err == nil {
		t.Error("an id that is none is taken")
	}
}

func TestAllocations(t *testing.T) {
	r := newRecorder(t, insight.Options{})
	door := r.Door("")
	rule := headgate.MustRule("r", headgate.PerMinute(10))
	checks, decisions := []headgate.Check{{Rule: rule, Key: "alice"}}, decided(rule, true, 9)
	for range 1000 {
		door.Decided(0, checks, decisions)
	}
	if n := testing.AllocsPerRun(5000, func() { door.Decided(0, checks, decisions) }); n != 0 {
		t.Errorf("an allowed decision allocates %v times", n)
	}
}

func BenchmarkAllowed(b *testing.B) {
	rule := headgate.MustRule("r", headgate.PerMinute(10))
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, 1_000_000)
	keys := make([]string, 1<<16)
	for i := range keys {
		keys[i] = fmt.Sprintf("client-%d", zipf.Uint64())
	}
	for _, c := range []struct {
		name string
		mask int
	}{{"hot", 0}, {"zipf", 1<<16 - 1}} {
		b.Run(c.name, func(b *testing.B) {
			r := insight.New(insight.Options{})
			defer r.Close()
			door := r.Door("")
			checks, decisions := []headgate.Check{{Rule: rule}}, decided(rule, true, 9)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				checks[0].Key = keys[i&c.mask]
				door.Decided(0, checks, decisions)
			}
		})
	}
}

// BenchmarkDecision is a decision of the memory store, the same with hooks that do nothing, and with a
// recorder, of more keys than it follows. The difference of the last two is what a recorder costs:
// compare the fastest of many rounds (-count 20 -cpu 1).
func BenchmarkDecision(b *testing.B) {
	rule := headgate.MustRule("r", headgate.PerHour(1_000_000_000))
	keys := make([]string, 1<<10)
	for i := range keys {
		keys[i] = fmt.Sprintf("client-%d", i)
	}
	r := insight.New(insight.Options{})
	defer r.Close()
	for _, of := range []struct {
		name  string
		store headgate.Store
	}{
		{"store", memory.New()},
		{"hooks", headgate.Observe(memory.New(), headgate.Hooks{Decided: func(context.Context, headgate.Op, []headgate.Check, []headgate.Decision, time.Duration) {}})},
		{"recorder", headgate.Observe(memory.New(), r.Hooks())},
	} {
		b.Run(of.name, func(b *testing.B) {
			checks, decisions := []headgate.Check{{Rule: rule}}, make([]headgate.Decision, 0, 1)
			for i := 0; b.Loop(); i++ {
				checks[0].Key = keys[i&(len(keys)-1)]
				if _, err := of.store.Take(b.Context(), headgate.OpTake, checks, decisions); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
