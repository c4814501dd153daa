package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

var (
	address = entry("ip")
	apiKey  = &Fact[string]{Name: "api_key", Find: entry("api_key").Find, Unclear: func(line string) string {
		if strings.Contains(line, "api_key=?") {
			return "two keys"
		}
		return ""
	}}
	word = entry("word")
)

// told is what the hooks were told.
type told struct{ lines []string }

func (l *told) add(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

// options are those of the tests' adapter, whose hooks write into the log.
func options(store headgate.Store, log *told) *Options[string] {
	return &Options[string]{
		Store: store, IPv6Bits: DefaultIPv6Prefix, MaxDelay: DefaultMaxDelay,
		Known: []*Fact[string]{address, apiKey, word}, Address: address,
		Hooks: Hooks[string]{
			Denied:  func(_ string, v headgate.Verdict) { log.add("denied %t", v.Allowed) },
			Soft:    func(_ string, d headgate.Decision) { log.add("soft %s", d.Rule.Name()) },
			Missing: func(_ string, entry string) { log.add("missing %s", entry) },
			Failed:  func(_ string, err error) { log.add("failed: %v", err) },
			Waited:  func(_ string, d time.Duration) { log.add("waited %v", d) },
		},
	}
}

func gate(t *testing.T, o *Options[string], group Group[string]) *Gate[string] {
	t.Helper()
	g := New(o, group)[0]
	if err := o.Problems.Err("test"); err != nil {
		t.Fatal(err)
	}
	return g
}

// limit binds by one key, with one rule.
func limit(key Key[string], name string, l headgate.Limit) Group[string] {
	return Group[string]{Option: "Limit", Bindings: []Binding[string]{{Key: key, Rules: []*headgate.Rule{headgate.MustRule(name, l)}}}, UsesPolicy: true}
}

// stopped is a memory store whose clock stands still until it is moved.
func stopped() (*memory.Store, *atomic.Int64) {
	clock := new(atomic.Int64)
	clock.Store(1_763_712_000_000_000)
	return memory.New(memory.Clock(clock.Load)), clock
}

// storeFunc is a store made of a function.
type storeFunc func(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error)

func (f storeFunc) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	return f(ctx, op, checks, dst)
}

func failing(err error) storeFunc {
	return func(_ context.Context, _ headgate.Op, _ []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
		return dst, err
	}
}

// TestOutcomes: every way that a request can go, and what the hooks are told.
func TestOutcomes(t *testing.T) {
	down := fmt.Errorf("%w: nobody there", headgate.ErrUnavailable)
	mistaken := &headgate.InvalidError{Subject: "x"}
	lists, err := policy.New([]policy.Rule{
		{Limits: headgate.MustRule("closed", headgate.PerHour(4)), Hints: headgate.Hints{OnError: headgate.OnErrorDeny}, Match: []policy.Condition{policy.Equal("word", "closed")}},
		{Limits: headgate.MustRule("soft", headgate.PerHour(2)), Soft: 50, Match: []policy.Condition{policy.Equal("word", "soft")}},
	}, policy.Denied(policy.ListEntry{Name: "bad", Match: []policy.Condition{policy.Equal("word", "bad")}}),
		policy.Allowed(policy.ListEntry{Name: "good", Match: []policy.Condition{policy.Equal("word", "good")}}))
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	byKey := limit(By(apiKey), "key", headgate.PerHour(1))
	costing := func(n int64) Group[string] {
		g := limit(By[string](), "all", headgate.PerHour(3))
		g.Cost, g.CostOption = func(string) int64 { return n }, "Cost"
		return g
	}
	with := func(change func(*Options[string])) func(*Options[string]) { return change }
	byIP := with(func(o *Options[string]) { o.Missing = CountMissingByIP })
	for _, tt := range []struct {
		name  string
		group Group[string]
		store headgate.Store // nil is one that works
		with  func(*Options[string])
		ctx   context.Context
		lines []string // requests, of which the last counts
		want  Outcome
		entry string
		told  []string
	}{
		{"admitted", byKey, nil, nil, nil, []string{"api_key=a"}, Passed, "", nil},
		{"denied", byKey, nil, nil, nil, []string{"api_key=a", "api_key=a"}, Denied, "", []string{"denied false"}},
		{"another key", byKey, nil, nil, nil, []string{"api_key=a", "api_key=b"}, Passed, "", nil},
		{"no key", byKey, nil, nil, nil, []string{""}, Lacking, "api_key", []string{"missing api_key"}},
		{"no key, let past", byKey, nil, with(func(o *Options[string]) { o.Missing = PassMissing }), nil, []string{""}, Passed, "", []string{"missing api_key"}},
		{"no key, by address", byKey, nil, byIP, nil, []string{"ip=192.0.2.1", "ip=192.0.2.1"}, Denied, "", []string{"missing api_key", "missing api_key", "denied false"}},
		{"no key, and another address", byKey, nil, byIP, nil, []string{"ip=192.0.2.1", "ip=192.0.2.2"}, Passed, "", []string{"missing api_key", "missing api_key"}},
		{"neither key nor address", byKey, nil, byIP, nil, []string{""}, Lacking, "api_key", []string{"missing api_key"}},
		{"a key of two words", byKey, nil, nil, nil, []string{"api_key=?"}, Unclear, "api_key", []string{"missing api_key"}},
		{"a key that is too long", byKey, nil, nil, nil, []string{"api_key=" + strings.Repeat("a", policy.MaxValue+1)}, TooLong, "api_key", []string{"missing api_key"}},
		{"unclear whatever rules need", limit(By(address), "ip", headgate.PerHour(1)), nil, with(func(o *Options[string]) { o.Unclear = func(string) string { return "bad" } }), nil, []string{"ip=::1"}, Unclear, "", nil},
		{"a key of two words that nobody needs", limit(By(address), "ip", headgate.PerHour(1)), nil, nil, nil, []string{"ip=::1 api_key=?"}, Passed, "", nil},
		{"costs nothing", costing(0), nil, nil, nil, []string{"", "", "", ""}, Passed, "", nil},
		{"costs too little", costing(-1), nil, nil, nil, []string{""}, Broken, "", []string{"failed: headgate: invalid: the function of Cost returned -1, must be 0 to 9007199254740991"}},
		{"costs too much", costing(headgate.MaxCount + 1), nil, nil, nil, []string{""}, Broken, "", []string{"failed: headgate: invalid: the function of Cost returned 9007199254740992, must be 0 to 9007199254740991"}},
		{"never fits", costing(4), nil, nil, nil, []string{""}, Denied, "", []string{"denied false"}},
		{"on the deny list", Group[string]{UsesPolicy: true}, nil, nil, nil, []string{"word=bad"}, Listed, "", nil},
		{"on the allow list", Group[string]{UsesPolicy: true}, nil, nil, nil, []string{"word=good"}, Passed, "", nil},
		{"on a list that does not bind here", Group[string]{}, nil, nil, nil, []string{"word=bad"}, Passed, "", nil},
		{"a warning", Group[string]{UsesPolicy: true}, nil, nil, nil, []string{"word=soft"}, Passed, "", []string{"soft soft"}},
		{"no store", byKey, failing(down), nil, nil, []string{"api_key=a"}, Open, "", []string{"failed: headgate: store unavailable: nobody there"}},
		{"no store, closed", byKey, failing(down), with(func(o *Options[string]) { o.Failure = FailClosed }), nil, []string{"api_key=a"}, Unavailable, "", []string{"failed: headgate: store unavailable: nobody there"}},
		{"no store, and a rule that denies", Group[string]{UsesPolicy: true}, failing(down), nil, nil, []string{"word=closed"}, Unavailable, "", []string{"failed: headgate: store unavailable: nobody there"}},
		{"no store, and the caller gone", byKey, failing(down), nil, gone, []string{"api_key=a"}, Ended, "", nil},
		{"a check that cannot be", byKey, failing(mistaken), nil, nil, []string{"api_key=a"}, Broken, "", []string{"failed: " + mistaken.Error()}},
		{"a check that cannot be, and the caller gone", byKey, failing(mistaken), nil, gone, []string{"api_key=a"}, Broken, "", []string{"failed: " + mistaken.Error()}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log told
			store := tt.store
			if store == nil {
				store, _ = stopped()
			}
			o := options(store, &log)
			o.AddPolicy(lists)
			if tt.with != nil {
				tt.with(o)
			}
			g, ctx := gate(t, o, tt.group), tt.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			var got Outcome
			var lacks string
			for _, line := range tt.lines {
				a := g.Try(ctx, line, 0)
				got, lacks = a.Outcome, a.Entry
				if admitted := got == Passed; admitted != a.Verdict.Allowed {
					t.Errorf("%v, and the verdict's Allowed is %t", got, a.Verdict.Allowed)
				}
				if (got == Unclear) != (a.Why != "") {
					t.Errorf("%v, because %q", got, a.Why)
				}
				if undecided := got >= Unavailable || got == Open; undecided != (a.Err != nil) {
					t.Errorf("%v, and the error is %v", got, a.Err)
				}
				a.Free()
			}
			if got != tt.want || lacks != tt.entry || !slices.Equal(log.lines, tt.told) {
				t.Errorf("outcome %v, lacks %q, told %q; want %v, %q, %q", got, lacks, log.lines, tt.want, tt.entry, tt.told)
			}
		})
	}
}

// TestFallbackKey: who is counted by their address has one counter, however the address
// is spelled, and meets nobody else.
func TestFallbackKey(t *testing.T) {
	for _, tt := range []struct {
		bits          int
		address, want string
	}{
		{64, "192.0.2.1", "\x1fip:192.0.2.1"},
		{64, "::ffff:192.0.2.1", "\x1fip:192.0.2.1"},
		{32, "192.0.2.1", "\x1fip:192.0.2.1"},
		{64, "2001:db8::1", "\x1fip:2001:db8::/64"},
		{48, "2001:db8:0:7::1", "\x1fip:2001:db8::/48"},
		{64, "fe80::1%eth0", "\x1fip:fe80::/64"},
		{128, "fe80::1%eth0", "\x1fip:fe80::1"},
		{128, "2001:db8::1", "\x1fip:2001:db8::1"},
		{64, "nobody", ""},
		{64, "", ""},
	} {
		g := &Gate[string]{Options: &Options[string]{Address: address, IPv6Bits: tt.bits}}
		if got := g.fallbackKey(policy.Descriptor{{Name: "ip", Value: tt.address}}); got != tt.want {
			t.Errorf("%s by %d bits: %q, want %q", tt.address, tt.bits, got, tt.want)
		}
	}
}

// TestNothingToGiveBack: a request that nobody has counted, and that is not let in, gives
// nothing back. A refund without checks would be an error.
func TestNothingToGiveBack(t *testing.T) {
	open := storeFunc(func(_ context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
		if err := store.Validate(op, checks); err != nil {
			return dst, err
		}
		return append(dst, headgate.Decision{Rule: checks[0].Rule, Limit: &checks[0].Rule.Limits()[0], Allowed: true, Source: headgate.SourceOpen, Delay: time.Hour}), nil
	})
	var log told
	a := gate(t, options(open, &log), limit(By[string](), "all", headgate.PerHour(1))).Try(t.Context(), "", 0)
	if a.Outcome != Denied || !slices.Equal(log.lines, []string{"denied false"}) {
		t.Errorf("outcome %v, told %q", a.Outcome, log.lines)
	}
}

// TestTry: a denied request waits until it fits, for as long as it may.
func TestTry(t *testing.T) {
	bucket := headgate.Limit{Count: 1, Period: time.Second, Burst: 1}
	paced := headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Period: time.Second, Burst: 4}
	soon, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, tt := range []struct {
		name    string
		limit   headgate.Limit
		ctx     context.Context
		wait    time.Duration
		oneWait bool
		want    []Outcome
		told    []string
	}{
		{"it may not wait", bucket, nil, 0, false, []Outcome{Passed, Denied}, []string{"denied false"}},
		{"it may wait", bucket, nil, time.Second, false, []Outcome{Passed, Passed, Passed}, []string{"waited 1s", "waited 1s"}},
		{"not so long", bucket, nil, time.Second - 1, false, []Outcome{Passed, Denied}, []string{"denied false"}},
		{"not beyond its deadline", headgate.PerHour(1), soon, 2 * time.Hour, false, []Outcome{Passed, Denied}, []string{"denied false"}},
		{"a delay", paced, nil, 0, false, []Outcome{Passed, Passed}, []string{"waited 1s"}},
		{"a delay, within the wait", paced, nil, 2 * time.Second, true, []Outcome{Passed, Passed}, []string{"waited 1s"}},
		// To wait first would leave less time for the delay.
		{"a delay, longer than the wait", paced, nil, time.Second - 1, true, []Outcome{Passed, Denied}, []string{"denied false"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store, clock := stopped()
			var log told
			o := options(store, &log)
			o.OneWait = tt.oneWait
			o.Sleep = func(_ context.Context, d time.Duration) error {
				clock.Add(d.Microseconds())
				return nil
			}
			g, ctx := gate(t, o, limit(By[string](), "all", tt.limit)), tt.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			for i, want := range tt.want {
				a := g.Try(ctx, "", tt.wait)
				if a.Outcome != want {
					t.Errorf("request %d: %v, want %v", i+1, a.Outcome, want)
				}
				a.Free()
			}
			if !slices.Equal(log.lines, tt.told) {
				t.Errorf("told %q, want %q", log.lines, tt.told)
			}
		})
	}
}

// TestPassage: what stays charged of a request that has ended.
func TestPassage(t *testing.T) {
	failures := policy.Statuses{{First: 500, Last: 599}}
	set, err := policy.New([]policy.Rule{
		{Limits: headgate.MustRule("work", headgate.PerHour(100)), GiveBackOn: failures},
		{Limits: headgate.MustRule("always", headgate.PerHour(100))},
	})
	if err != nil {
		t.Fatal(err)
	}
	const unset = -1
	for _, tt := range []struct {
		name     string
		settles  bool
		status   int
		cost     int64
		charged  []int64 // of 100 each
		mistakes int
	}{
		{"well", false, 200, unset, []int64{10, 10}, 0},
		{"badly", false, 503, unset, []int64{0, 10}, 0},
		{"settled", true, 200, 7, []int64{7, 7}, 0},
		{"settled at more", true, 200, 30, []int64{30, 30}, 0},
		{"settled, badly", true, 503, 7, []int64{0, 7}, 0},
		{"settled by mistake", true, 200, headgate.MaxCount + 1, []int64{10, 10}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store, _ := stopped()
			var log told
			o := options(store, &log)
			o.AddPolicy(set)
			g := gate(t, o, Group[string]{UsesPolicy: true, Settles: tt.settles, Cost: func(string) int64 { return 10 }})
			a := g.Try(t.Context(), "a request", 0)
			p := a.Passage
			a.Free()
			ctx := p.Context(t.Context())
			if got := SetCost[string](ctx, tt.cost); tt.cost != unset && got != tt.settles {
				t.Errorf("somebody wants to know the cost: %t", got)
			}
			p.End(tt.status, func(r string, cost int64) int64 {
				if r != "a request" || cost != max(tt.cost, 0) {
					t.Errorf("the cost of %q is asked for, and was set to %d", r, cost)
				}
				return cost
			})
			var charged []int64
			for _, r := range set.Rules() {
				d, err := headgate.New(store, r.Limits).Peek(t.Context(), "", 1)
				if err != nil {
					t.Fatal(err)
				}
				charged = append(charged, 100-d.Remaining)
			}
			if !slices.Equal(charged, tt.charged) || len(log.lines) != tt.mistakes {
				t.Errorf("%d are charged, told %q; want %d", charged, log.lines, tt.charged)
			}
		})
	}
	// Nothing to be told of: a rule that charges in any case, or a request that
	// nothing has counted.
	store, _ := stopped()
	o := options(store, new(told))
	if a := gate(t, o, limit(By[string](), "all", headgate.PerHour(1))).Try(t.Context(), "", 0); a.Passage != nil {
		t.Error("there is a passage that nothing depends on")
	}
}

// TestContext: a context without a reservation behind it has nobody who wants to know
// the cost, and adapters do not meet in one.
func TestContext(t *testing.T) {
	p := new(Passage[string])
	if ctx := p.Context(t.Context()); ctx != t.Context() || SetCost[string](ctx, 1) {
		t.Error("a passage without a reservation wants to know the cost")
	}
	p.charge.Reservation.ID = "one"
	ctx := p.Context(t.Context())
	if SetCost[int](ctx, 1) || !SetCost[string](ctx, 3) || p.cost.Load() != 3 {
		t.Errorf("the cost is %d", p.cost.Load())
	}
}
