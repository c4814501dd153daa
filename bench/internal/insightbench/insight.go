package insightbench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/telemetry/insight"
)

// plan is how much is measured.
type plan struct {
	measure.Plan
	// draws is how many decisions there are on the keys of one rule, and rules how many rules
	// share the keys.
	draws, rules int
}

// A run for the record takes about half a minute.
func planOf(w *measure.Work) plan {
	return measure.Choose(w,
		plan{measure.Plan{Rounds: 7, Slice: 300 * time.Millisecond, Keys: 1_000_000}, 2_000_000, 10_000},
		plan{measure.Plan{Rounds: 1, Slice: 30 * time.Millisecond, Keys: 20_000}, 60_000, 200})
}

// followed is how many keys a rule has followed by use.
const followed = 384

// Run measures the recorder.
func Run(ctx context.Context, w *measure.Work) (*report.Text, error) { return run(ctx, w, planOf(w)) }

func run(ctx context.Context, w *measure.Work, p plan) (*report.Text, error) {
	t := new(report.Text)
	rows := measure.Rows{
		{Name: "admitted, one key"},
		{Name: "admitted, 10,000 keys"},
		{Name: "denied, 10,000 keys"},
	}
	if err := p.Turns(ctx, w, rows, nil, func(_, _, i int) (measure.Sample, error) { return count(p.Slice, i) }); err != nil {
		return nil, err
	}
	t.Say("What a decision costs its caller to be counted; median of %d rounds of %v.\n\n", p.Rounds, p.Slice)
	t.Say("%s", rows.Table(measure.Median("ns", 0, measure.Sample.Nanos), measure.Median("allocations", 0, measure.Sample.AllocsEach)))
	for _, r := range rows[:2] {
		t.AtMost(60, r.Median(0, measure.Sample.Nanos), "%s: ns a decision", r.Name)
		// The runtime itself allocates a little now and then.
		t.AtMost(0.01, r.Median(0, measure.Sample.AllocsEach), "%s: allocations a decision", r.Name)
	}
	w.Say("%d decisions on %d keys of one rule", p.draws, p.Keys)
	if err := top(t, p); err != nil {
		return nil, err
	}
	w.Say("%d keys of %d rules", p.Keys, p.rules)
	return t, many(t, p)
}

// count has one goroutine count decisions: of one key, of many, of many that are denied.
func count(d time.Duration, kind int) (measure.Sample, error) {
	r := insight.New(insight.Options{})
	defer r.Close()
	door, rule := r.Door("http"), headgate.MustRule("api", headgate.PerMinute(1000))
	keys := []string{"user00000000"}
	for i := 1; kind > 0 && i < 10_000; i++ {
		keys = append(keys, fmt.Sprintf("user%08d", i))
	}
	checks := []headgate.Check{{Rule: rule, Cost: 1}}
	decisions := decisions(rule, kind < 2)
	return measure.Tight(1, d, func(_, done int) error {
		for i := range measure.Batch {
			checks[0].Key = keys[(done+i)%len(keys)]
			door.Decided(1, checks, decisions)
		}
		return nil
	})
}

func decisions(rule *headgate.Rule, allowed bool) []headgate.Decision {
	return []headgate.Decision{{Rule: rule, Limit: &rule.Limits()[0], Allowed: allowed, Remaining: 500, At: 1_800_000_000_000_000}}
}

// clock is a clock that is set, while the recorder's goroutine reads it.
type clock struct{ ahead atomic.Int64 }

func (c *clock) Now() time.Time { return time.Unix(1_800_000_000, c.ahead.Load()) }

func (c *clock) add(d time.Duration) { c.ahead.Add(int64(d)) }

// top compares what is said of the keys of one rule with the truth.
func top(t *report.Text, p plan) error {
	sums, sum := make([]float64, p.Keys), 0.0
	for i := range sums {
		sum += math.Pow(float64(i+1), -1.1)
		sums[i] = sum
	}
	c := new(clock)
	r := insight.New(insight.Options{Now: c.Now})
	defer r.Close()
	door, rule := r.Door("http"), headgate.MustRule("api", headgate.PerMinute(1000))
	random := rand.New(rand.NewPCG(7, 11)) //nolint:gosec // The same keys each time.
	truth := make([]int64, p.Keys)
	checks, decisions := []headgate.Check{{Rule: rule, Cost: 1}}, decisions(rule, true)
	for range p.draws {
		key := sort.SearchFloat64s(sums, random.Float64()*sum)
		truth[key]++
		checks[0].Key = strconv.Itoa(key)
		door.Decided(1, checks, decisions)
	}
	found, ok := r.Rule("api", insight.Last(insight.Step))
	if !ok {
		return errors.New("insightbench: nothing is known of the rule")
	}
	wrong, worst := 0.0, int64(0)
	for _, k := range found.Use.Keys {
		key, err := strconv.Atoi(k.Key.Raw)
		if err != nil {
			return fmt.Errorf("insightbench: a key that was never used: %w", err)
		}
		if is := truth[key]; k.Count-k.Error > is || is > k.Count {
			wrong++
		}
		worst = max(worst, k.Error)
	}
	largest := make([]int, p.Keys)
	for i := range largest {
		largest[i] = i
	}
	slices.SortFunc(largest, func(a, b int) int { return int(truth[b] - truth[a]) })
	const most = 20
	recalled := 0
	for _, key := range largest[:most] {
		if slices.ContainsFunc(found.Use.Keys[:min(most, len(found.Use.Keys))], func(k insight.Key) bool {
			return k.Key.Raw == strconv.Itoa(key)
		}) {
			recalled++
		}
	}
	t.Say("\nThe busiest of %s keys after %s decisions (Zipf, 1.1): of the %d that are listed, the error is %s at most, where %s is allowed (decisions ÷ keys that are followed).\n",
		report.Number(float64(p.Keys)), report.Number(float64(p.draws)), len(found.Use.Keys), report.Number(float64(worst)), report.Number(float64(p.draws)/followed))
	t.AtMost(0, wrong, "keys whose true count is not within count − error and count")
	t.AtMost(1, float64(worst)/(float64(p.draws)/followed), "largest error ÷ (decisions ÷ keys that are followed)")
	t.AtLeast(1, float64(recalled)/most, "recall of the 20 busiest keys")

	// All of two hours, with other keys in each step, denied and admitted.
	full := insight.New(insight.Options{Now: c.Now})
	defer full.Close()
	door = full.Door("http")
	denials := denying(rule)
	for minute := range int(insight.Kept / time.Minute) {
		for i := range p.draws / 400 {
			checks[0].Key = fmt.Sprintf("a-key-of-usual-length-%d-%d", minute/10, i)
			door.Decided(1, checks, decisions)
			door.Decided(1, checks, denials[i%2])
		}
		c.add(time.Minute)
		full.Overview(insight.Last(time.Minute), 1) // has everything counted
	}
	bytes, _ := full.Memory()
	t.Say("After two hours in which it had other keys every ten minutes, a rule takes %s bytes by the recorder's account.\n", report.Number(float64(bytes)))
	t.AtMost(insight.MaxRuleBytes, float64(bytes), "bytes of one rule with as many keys as there are")
	return nil
}

// denying are denials that count, and such that do not.
func denying(rule *headgate.Rule) [2][]headgate.Decision {
	counts, shadow := decisions(rule, false), decisions(rule, false)
	shadow[0].Shadow = true
	return [2][]headgate.Decision{counts, shadow}
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// many has many rules share many keys, and looks at them as the dashboard does.
func many(t *report.Text, p plan) error {
	before := heap()
	r := insight.New(insight.Options{})
	defer r.Close()
	door := r.Door("http")
	for i := range p.rules {
		rule := headgate.MustRule(fmt.Sprintf("rule-%05d", i), headgate.PerMinute(1000))
		checks, allowed, denied := []headgate.Check{{Rule: rule, Cost: 1}}, decisions(rule, true), decisions(rule, false)
		for k := range p.Keys / p.rules {
			checks[0].Key = fmt.Sprintf("client-%d-%d", i, k)
			door.Decided(1, checks, allowed)
			if k%8 == 0 {
				door.Decided(1, checks, denied)
			}
		}
	}
	r.Overview(insight.Last(time.Minute), 1)
	began := time.Now()
	now := r.Overview(insight.Last(10*time.Minute), 25)
	took := time.Since(began)
	bytes, left := r.Memory()
	grown := heap() - before
	runtime.KeepAlive(r)
	t.Say("\n%s rules with %s keys between them take %s MiB, and the heap grows by %s MiB. %s of %s decisions are of rules that there is no memory for. The page Now is answered in %s ms.\n",
		report.Number(float64(p.rules)), report.Number(float64(p.Keys)), report.Number(float64(bytes)/(1<<20)), report.Number(grown/(1<<20)),
		report.Number(float64(left.Decisions)), report.Number(float64(p.Keys)*9/8), report.Number(float64(took.Microseconds())/1000))
	t.AtMost(insight.DefaultMaxBytes, float64(bytes), "bytes of all rules together")
	t.AtMost(250, float64(took.Microseconds())/1000, "ms to answer the page Now with that many rules")
	if len(now.Rules) == 0 {
		return errors.New("insightbench: the page Now has no rules")
	}
	return nil
}
