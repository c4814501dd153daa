package candidate

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// TestDifferences: who is denied by one policy only, and by what.
func TestDifferences(t *testing.T) {
	s := newStage(t, set(t, []policy.Rule{limits("api", 5, "user"), limits("all", 100)}), set(t, []policy.Rule{limits("api", 3, "user"), limits("all", 100)}), Options{}).run()
	s.takes(7, user("anna"))
	s.takes(4, user("ben"))
	s.takes(3, user("cleo"))
	r := s.want(3+3+3, 2, 2+1, 0)
	if want := []Split{{Denier: Denier{Rule: "api"}, NewlyDenied: 3}}; len(r.Rules) != 1 || r.Rules[0].Denier != want[0].Denier || r.Rules[0].NewlyDenied != 3 || r.Rules[0].Tiers != nil {
		t.Errorf("rules %+v, want %+v", r.Rules, want)
	}
	if want := []Key{{Denier: Denier{Rule: "api"}, Key: "anna", Count: 2}, {Denier: Denier{Rule: "api"}, Key: "ben", Count: 1}}; !slices.Equal(r.TopNewlyDenied, want) || len(r.TopNewlyAdmitted) != 0 {
		t.Errorf("keys %+v and %+v, want %+v", r.TopNewlyDenied, r.TopNewlyAdmitted, want)
	}
	// The counters in force have seen nothing of it.
	if s.ask(headgate.OpTake, policy.Descriptor{user("ben")}) != true || s.ask(headgate.OpTake, policy.Descriptor{user("ben")}) != false {
		t.Error("what the candidate has counted was charged to what is in force")
	}
	// The other way round, it is the rule in force that decides.
	s = newStage(t, set(t, []policy.Rule{limits("api", 3, "user")}), set(t, []policy.Rule{limits("users", 5, "user")}), Options{}).run()
	s.takes(7, user("anna"))
	r = s.want(3, 2, 0, 2)
	if want := []Key{{Denier: Denier{Rule: "api"}, Key: "anna", Count: 2}}; !slices.Equal(r.TopNewlyAdmitted, want) || len(r.TopNewlyDenied) != 0 || r.Rules[0].NewlyAdmitted != 2 {
		t.Errorf("keys %+v, rules %+v", r.TopNewlyAdmitted, r.Rules)
	}
}

// TestSame: a policy does not differ from itself, whatever happens.
func TestSame(t *testing.T) {
	same := set(t, []policy.Rule{limits("api", 3, "user"), limits("all", 20), {Limits: headgate.MustRule("slow", headgate.Sliding(2, time.Minute)), Per: []policy.Part{{Entry: "ip"}}}})
	for _, workers := range []int{1, 8} {
		o := Options{Workers: workers}
		if workers > 1 {
			o.Store = newStage(t, same, nil, Options{}).liveStore
		}
		s := newStage(t, same, same, o).run()
		for i := range 40 {
			s.ask(headgate.OpTake, policy.Descriptor{user(string(rune('a' + i%7)))})
			if i%3 == 0 {
				s.ask(headgate.OpRefund, policy.Descriptor{user(string(rune('a' + i%7)))})
			}
			s.ask(headgate.OpTake, policy.Descriptor{{Name: "ip", Value: "192.0.2." + string(rune('1'+i%3))}})
			// What is not decided one after the other may be decided otherwise.
			s.report()
		}
		if r := s.report(); r.NewlyDenied+r.NewlyAdmitted+r.Undecidable != 0 || r.Compared != 80 || r.BothDenied == 0 {
			t.Errorf("%d workers: %+v", workers, r)
		}
	}
}

// TestTiers: differences are told by tier, as the policy that denies has it.
func TestTiers(t *testing.T) {
	tariff := func(free, pro int64) *policy.Set {
		return set(t, []policy.Rule{{
			Name: "api", Per: []policy.Part{{Entry: "user"}},
			Tariff: &policy.Tariff{Entry: "tier", Tiers: []policy.Tier{{Value: "free", Limits: perHour("api", free)}, {Value: "pro", Limits: perHour("api", pro)}}, Other: perHour("api", 1)},
		}}, policy.SubjectTable(policy.Subjects{By: "user", Table: []policy.Subject{
			{Key: "anna", Entries: []policy.Entry{{Name: "tier", Value: "free"}}},
			{Key: "ben", Entries: []policy.Entry{{Name: "tier", Value: "pro"}}},
		}}))
	}
	s := newStage(t, tariff(4, 4), tariff(2, 6), Options{}).run()
	s.takes(5, user("anna"))
	s.takes(6, user("ben"))
	s.takes(2, user("cleo"))
	r := s.want(2+4+1, 1+1, 2, 2)
	want := []Tier{{Tier: "free", NewlyDenied: 2}, {Tier: "pro", NewlyAdmitted: 2}}
	if len(r.Rules) != 1 || !slices.Equal(r.Rules[0].Tiers, want) || r.Rules[0].NewlyDenied != 2 || r.Rules[0].NewlyAdmitted != 2 {
		t.Errorf("%+v, want %+v", r.Rules, want)
	}
}

// TestLists: lists differ too, and are named with the client, of whom secrets are
// hashes.
func TestLists(t *testing.T) {
	deny := func(name string, c ...policy.Condition) policy.Option {
		return policy.Denied(policy.ListEntry{Name: name, Match: c})
	}
	rules := []policy.Rule{limits("all", 2)}
	live := set(t, rules, deny("old", policy.Equal("api_key", "geheim")))
	tried := set(t, rules, deny("new", policy.Prefix("ip", "192.0.2."), policy.Absent("user")), policy.Allowed(policy.ListEntry{Name: "staff", Match: []policy.Condition{policy.Equal("user", "staff")}}))
	s := newStage(t, live, tried, Options{}).run()
	s.takes(2, policy.Entry{Name: "ip", Value: "192.0.2.7"}, policy.Entry{Name: "method", Value: "GET"})
	s.takes(1, policy.Entry{Name: "api_key", Value: "geheim"})
	s.takes(3, user("staff"))
	r := s.want(0, 0, 2, 1+3)
	if want := []Key{{Denier: Denier{List: "new"}, Key: "ip=192.0.2.7", Count: 2}}; !slices.Equal(r.TopNewlyDenied, want) {
		t.Errorf("%+v, want %+v", r.TopNewlyDenied, want)
	}
	want := []Key{{Denier: Denier{Rule: "all"}, Count: 3}, {Denier: Denier{List: "old"}, Key: "api_key=hash:" + live.Hash("api_key", "geheim"), Count: 1}}
	if !slices.Equal(r.TopNewlyAdmitted, want) {
		t.Errorf("%+v, want %+v", r.TopNewlyAdmitted, want)
	}
}

// TestNamed: a named check counts where its descriptor does, secrets included, and
// a rule that the candidate has not is told.
func TestNamed(t *testing.T) {
	live := set(t, []policy.Rule{limits("login", 9, "api_key"), {Limits: perHour("job", 9), Direct: true}})
	s := newStage(t, live, set(t, []policy.Rule{limits("login", 2, "api_key")}), Options{}).run()
	s.named(decide.Named{Rule: "login", Key: "k1", Cost: 2})
	s.takes(1, policy.Entry{Name: "api_key", Value: "k1"})
	r := s.want(1, 0, 1, 0)
	if len(r.TopNewlyDenied) != 1 || strings.Contains(r.TopNewlyDenied[0].Key, "k1") {
		t.Errorf("keys %+v", r.TopNewlyDenied)
	}
	s.named(decide.Named{Rule: "login", Key: "k2", Cost: 1}, decide.Named{Rule: "job", Key: "j"})
	r = s.report()
	if r.Undecidable != 1 || !strings.Contains(r.WhyUndecidable, `no rule "job"`) || !slices.ContainsFunc(r.Rules, func(p Split) bool { return p.Rule == "job" && p.Undecidable == 1 }) {
		t.Errorf("%+v", r)
	}
	// One that brings its own rule is nothing to a policy.
	own := headgate.MustRule("own", headgate.PerSecond(1))
	if _, err := s.Take(t.Context(), &decide.Ask{Policy: s.Policy(), Checks: []headgate.Check{{Rule: own}}}, nil); err != nil {
		t.Fatal(err)
	}
	if again := s.report(); again.Compared != r.Compared || again.NotCompared != r.NotCompared {
		t.Errorf("a foreign rule was compared: %+v", again)
	}
}

// TestMirror: refunds and resets reach the candidate's counters, and peeks and charges,
// which decide nothing, do not.
func TestMirror(t *testing.T) {
	s := newStage(t, set(t, []policy.Rule{limits("api", 100, "user")}), set(t, []policy.Rule{limits("api", 2, "user")}), Options{}).run()
	d := policy.Descriptor{user("anna")}
	s.takes(2, d...)
	for range 5 {
		s.ask(headgate.OpPeek, d)
		s.ask(headgate.OpCharge, d)
	}
	s.ask(headgate.OpRefund, d)
	s.takes(1, d...)
	s.want(3, 0, 0, 0)
	s.takes(1, d...)
	s.want(3, 0, 1, 0)
	s.ask(headgate.OpReset, d)
	s.takes(2, d...)
	s.want(5, 0, 1, 0)
}

// TestPartialRefund: a refund of some of the rules, such as of those that give back
// what fails, is one of the same rules, and of those that only the candidate has.
func TestPartialRefund(t *testing.T) {
	all := func(n int64) []policy.Rule {
		return []policy.Rule{limits("kept", n, "user"), limits("given", n, "user")}
	}
	s := newStage(t, set(t, all(100)), set(t, append(all(3), limits("new", 3, "user"))), Options{}).run()
	d := policy.Descriptor{user("anna")}
	s.takes(3, d...)
	ask := decide.Ask{Op: headgate.OpRefund, Descriptor: d}
	ask.Policy = s.Policy()
	if err := ask.Resolve(); err != nil {
		t.Fatal(err)
	}
	ask.Checks = ask.Checks[1:]
	if _, err := s.Take(t.Context(), &ask, nil); err != nil {
		t.Fatal(err)
	}
	s.takes(1, d...)
	r := s.want(3, 0, 1, 0)
	if len(r.Rules) != 1 || r.Rules[0].Rule != "kept" {
		t.Errorf("%+v", r.Rules)
	}
	// One whose rules are all unknown to the candidate is none.
	ask.Checks = nil
	if _, err := s.Take(t.Context(), &ask, nil); err != nil {
		t.Fatal(err)
	}
	s.report()
}

// TestSettleByRule: a rule that stays charged at nothing in force does so here, and
// the candidate's factors apply.
func TestSettleByRule(t *testing.T) {
	all := func(n, factor int64) []policy.Rule {
		dear := limits("dear", n, "user")
		dear.Cost = factor
		return []policy.Rule{limits("free", n, "user"), dear}
	}
	s := newStage(t, set(t, all(1000, 2)), set(t, all(60, 3)), Options{}).run()
	ask := decide.Ask{Descriptor: policy.Descriptor{user("anna")}, Cost: 5, Reserve: true}
	ask.Policy = s.Policy()
	if err := ask.Resolve(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Take(t.Context(), &ask, nil); err != nil {
		t.Fatal(err)
	}
	r := ask.Reservation
	s.report()
	if _, err := s.Settle(t.Context(), r, []int64{0, 2 * 10}, nil); err != nil {
		t.Fatal(err)
	}
	s.report()
	// Of 60 there are 0 in use of the one, and 3 × 10 of the other.
	checks, err := s.candidate.Load().Match(policy.Descriptor{user("anna")}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	decisions, err := s.trial.options.Store.Take(t.Context(), headgate.OpPeek, checks, nil)
	if err != nil || len(decisions) != 2 || decisions[0].Remaining != 60 || decisions[1].Remaining != 30 {
		t.Errorf("%+v, %v", decisions, err)
	}
}

// TestOnce: a request that is repeated under its id is charged once.
func TestOnce(t *testing.T) {
	s := newStage(t, set(t, []policy.Rule{limits("api", 100, "user")}), set(t, []policy.Rule{limits("api", 2, "user")}), Options{}).run()
	once := func(id string) {
		t.Helper()
		ask := decide.Ask{Descriptor: policy.Descriptor{user("anna")}}
		ask.Policy = s.Policy()
		if err := ask.Resolve(); err != nil {
			t.Fatal(err)
		}
		ask.Terms.ID = id
		if _, err := s.Take(t.Context(), &ask, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		once("a")
	}
	once("b")
	s.want(6, 0, 0, 0)
	once("c")
	once("c")
	s.want(6, 0, 2, 0)
}

// TestReserve: an estimate is replaced by the real cost, in the candidate's rules.
func TestReserve(t *testing.T) {
	s := newStage(t, set(t, []policy.Rule{limits("api", 1000, "user")}), set(t, []policy.Rule{limits("api", 50, "user")}), Options{}).run()
	reserve := func(cost int64) headgate.Reservation {
		t.Helper()
		ask := decide.Ask{Descriptor: policy.Descriptor{user("anna")}, Cost: cost, Reserve: true}
		ask.Policy = s.Policy()
		if err := ask.Resolve(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Take(t.Context(), &ask, nil); err != nil {
			t.Fatal(err)
		}
		return ask.Reservation
	}
	settle := func(r headgate.Reservation, cost int64) {
		t.Helper()
		if _, err := s.Settle(t.Context(), r, r.Units(cost), nil); err != nil {
			t.Fatal(err)
		}
	}
	first := reserve(40)
	s.want(1, 0, 0, 0)
	denied := reserve(40) // 80 of 50
	s.want(1, 0, 1, 0)
	settle(first, 5)
	settle(denied, 40)
	s.report()
	reserve(45)
	s.want(2, 0, 1, 0)
	s.takes(1, user("anna"))
	s.want(2, 0, 2, 0)
}

// TestChange: figures are of two policies, and begin anew when either changes;
// counters go on.
func TestChange(t *testing.T) {
	rules := func(n int64) *policy.Set { return set(t, []policy.Rule{limits("api", n, "user")}) }
	s := newStage(t, rules(5), nil, Options{}).run()
	s.takes(1, user("anna"))
	if r := s.report(); r.Candidate != nil || r.Compared != 0 || r.NotCompared != (NotCompared{}) {
		t.Errorf("without a candidate: %+v", r)
	}
	s.setCandidate(rules(2))
	s.takes(3, user("anna"))
	before := s.want(2, 0, 1, 0)
	s.setCandidate(rules(3))
	if r := s.want(0, 0, 0, 0); r.Since.Before(before.Since) || !r.CountingSince.Equal(before.CountingSince) || r.Candidate.Version != before.Candidate.Version+1 {
		t.Errorf("%+v, before %+v", r, before)
	}
	s.setLive(rules(10))
	s.takes(2, user("anna"))
	r := s.want(1, 0, 1, 0)
	if r.Live.Version != 2 || len(r.Rules) != 1 {
		t.Errorf("%+v", r)
	}
	// Metrics never count back.
	compared, missed := s.trial.Outcomes()
	if compared[bothAdmitted].Count != 3 || compared[newlyDenied].Count != 2 || missed[dropped].Count != 0 || len(compared) != int(outcomes) || len(missed) != int(misses) {
		t.Errorf("%+v, %+v", compared, missed)
	}
	if d := s.trial.Differences(); len(d) != 1 || d[0].Count != 2 || d[0].Rule != "api" || d[0].Outcome != "newly_denied" {
		t.Errorf("%+v", d)
	}
}

// TestDropped: what there is no room for is dropped and counted, and the service
// does not wait.
func TestDropped(t *testing.T) {
	rules := set(t, []policy.Rule{limits("api", 1_000, "user")})
	for name, o := range map[string]Options{"places": {Queue: 3}, "bytes": {QueueBytes: 3 * (jobBytes + 8)}} {
		s := newStage(t, rules, rules, o)
		s.takes(10, user("ann"))
		if r := s.trial.Report(false); r.NotCompared.Dropped != 7 || s.trial.Waiting() != 3 {
			t.Errorf("%s: %+v, %d wait", name, r.NotCompared, s.trial.Waiting())
		}
		s.run()
		if r := s.report(); r.Compared != 3 || s.trial.bytes.Load() != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// broken is a store that fails or panics, as its keys say.
type broken struct{ headgate.Store }

func (b broken) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	switch checks[0].Key {
	case "down":
		return dst, headgate.ErrUnavailable
	case "panic":
		panic("a defect")
	}
	return b.Store.Take(ctx, op, checks, dst)
}

// TestFailures: what fails on either side is counted as not compared.
func TestFailures(t *testing.T) {
	rules := set(t, []policy.Rule{limits("api", 1_000, "user")})
	down := newStage(t, rules, nil, Options{})
	s := newStage(t, rules, rules, Options{Store: broken{down.liveStore}}).run()
	s.takes(2, user("down"))
	s.takes(1, user("panic"))
	s.ask(headgate.OpRefund, policy.Descriptor{user("down")})
	s.takes(1, user("fine"))
	if r := s.report(); r.NotCompared != (NotCompared{Unanswered: 4}) || r.Compared != 1 {
		t.Errorf("%+v", r)
	}
	s = newStage(t, rules, rules, Options{}).run()
	s.Decider = &decide.Over{Rules: s.Policy, Store: broken{s.liveStore}, Decided: s.trial.Decided}
	request := decide.Request{Ask: decide.Ask{Descriptor: policy.Descriptor{user("down")}}, Given: decide.GivenDescriptor}
	if out := request.Decide(t.Context(), s); out.Kind != decide.Unavailable {
		t.Fatal(out.Err)
	}
	if r := s.report(); r.NotCompared != (NotCompared{Undecided: 1}) || r.Compared != 0 {
		t.Errorf("%+v", r)
	}
}

// TestConcurrent: every request is counted somewhere, and those that a client could
// not have been denied by either policy are the same in both.
func TestConcurrent(t *testing.T) {
	live, tried := set(t, []policy.Rule{limits("api", 50, "user")}), set(t, []policy.Rule{limits("api", 20, "user")})
	s := newStage(t, live, tried, Options{Workers: 4, Store: newStage(t, live, nil, Options{}).liveStore}).run()
	const users, each = 8, 100
	var asking sync.WaitGroup
	for i := range users {
		asking.Go(func() {
			for n := range each {
				s.takes(1, user(string(rune('a'+i))))
				if n == each/2 {
					s.setCandidate(tried)
				}
			}
		})
	}
	asking.Wait()
	s.report()
	compared, missed := s.trial.Outcomes()
	var all int64
	for _, c := range append(compared, missed...) {
		all += c.Count
	}
	if all != users*each || compared[newlyDenied].Count != users*30 || compared[bothAdmitted].Count != users*20 || compared[bothDenied].Count != users*50 {
		t.Errorf("%+v, %+v", compared, missed)
	}
}

// TestBigReport: the order is by number, and what is beyond the bounds is told.
func TestBigReport(t *testing.T) {
	f := newFigures(decide.Policy{}, decide.Policy{}, time.Now())
	for i := range maxSplits + 7 {
		f.differ(split{outcome: newlyDenied, by: Denier{Rule: string(rune(i + 0x10000))}})
	}
	f.differ(split{outcome: newlyAdmitted, by: Denier{Rule: string(rune(0x10005))}})
	f.differ(split{outcome: newlyAdmitted, by: Denier{Rule: string(rune(0x10005))}, tier: "x"})
	rules, others := f.rules()
	if len(rules) != maxSplits || others != 7+2 {
		t.Errorf("%d rules and %d others", len(rules), others)
	}
	if !slices.IsSortedFunc(rules, func(a, b Split) int {
		return cmp.Or(cmp.Compare(b.NewlyDenied, a.NewlyDenied), strings.Compare(a.Rule, b.Rule))
	}) {
		t.Error("the rules are in no order")
	}
}
