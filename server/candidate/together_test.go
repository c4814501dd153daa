package candidate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/nested"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/memory"
)

// taking is a descriptor that takes so many units, with entries such as "user=anna".
func taking(cost int64, entries ...string) decide.Part {
	p := decide.Part{Op: headgate.OpTake, Cost: cost}
	for _, e := range entries {
		name, value, _ := strings.Cut(e, "=")
		p.Entries = append(p.Entries, policy.Entry{Name: name, Value: value})
	}
	return p
}

func with(op headgate.Op, p decide.Part) decide.Part {
	p.Op = op
	return p
}

// parts has the service decide several descriptors, and reports whether they are
// admitted.
func (s *stage) parts(independent bool, parts ...decide.Part) bool {
	s.t.Helper()
	r := &decide.Request{Ask: decide.Ask{Parts: &decide.Parts{Domain: "d", Independent: independent, List: parts}}}
	o := r.Decide(s.t.Context(), s.Decider)
	if o.Kind != decide.Decided {
		s.t.Fatal(o.Err)
	}
	return o.Verdict.Allowed
}

// when has the rule bind descriptors with these names in their order only.
func when(names string, r policy.Rule) policy.Rule {
	r.Match = append(r.Match, policy.Equal(nested.NamesEntry, names))
	return r
}

// TestTogether: each of several descriptors is decided for itself, and all are charged
// or none, by the candidate as by the policy in force.
func TestTogether(t *testing.T) {
	live := []policy.Rule{when("user", limits("user", 4, "user")), when("user|path", limits("path", 100, "user", "path"))}
	less := []policy.Rule{live[0], when("user|path", limits("path", 3, "user", "path"))}
	s := newStage(t, set(t, live), set(t, less), Options{}).run()

	// Two users in one request, and a third descriptor with one of their names.
	both := []decide.Part{taking(1, "user=a"), taking(1, "user=b"), taking(1, "user=a", "path=/x")}
	for range 3 {
		s.parts(false, both...)
	}
	s.want(3, 0, 0, 0)
	// The candidate's own limit of three denies, and charges nothing of the others,
	s.parts(false, both...)
	r := s.want(3, 0, 1, 0)
	if len(r.TopNewlyDenied) != 1 || r.TopNewlyDenied[0].Rule != "path" || r.TopNewlyDenied[0].Key != "a|/x" {
		t.Errorf("newly denied is %+v", r.TopNewlyDenied)
	}
	// so that user b, who is over the limit in force, has one left by the candidate.
	s.parts(false, taking(1, "user=b"))
	r = s.want(3, 0, 1, 1)
	if len(r.TopNewlyAdmitted) != 1 || r.TopNewlyAdmitted[0].Rule != "user" || r.TopNewlyAdmitted[0].Key != "b" {
		t.Errorf("newly admitted is %+v", r.TopNewlyAdmitted)
	}
	s.parts(false, taking(1, "user=b"))
	s.want(3, 1, 1, 1)
	// Charged each by itself, the rest is charged.
	s.parts(true, taking(1, "user=c"), taking(9, "user=a", "path=/x"))
	for range 3 {
		s.parts(false, taking(1, "user=c"))
	}
	s.want(6, 1, 2, 1)
	s.parts(false, taking(1, "user=c"))
	s.want(6, 2, 2, 1)
}

// TestTogetherWithPeeks: what a peek, or an entry of the deny list, turns away is asked
// of the store as a peek, and is a request to the candidate all the same.
func TestTogetherWithPeeks(t *testing.T) {
	banned := policy.ListEntry{Name: "banned", Match: []policy.Condition{policy.Equal("user", "mallory")}}
	rules := []policy.Rule{when("user", limits("user", 2, "user")), when("path", limits("path", 100, "path"))}
	more := []policy.Rule{when("user", limits("user", 5, "user")), rules[1]}
	s := newStage(t, set(t, rules, policy.Denied(banned)), set(t, more), Options{}).run()

	s.parts(false, taking(1, "path=/"), taking(1, "user=mallory"))
	r := s.want(0, 0, 0, 1)
	if k := r.TopNewlyAdmitted; len(k) != 1 || k[0].List != "banned" || k[0].Key != "user=mallory" {
		t.Errorf("newly admitted is %+v", k)
	}
	s.parts(false, taking(2, "user=a"))
	peeking := []decide.Part{with(headgate.OpPeek, taking(1, "user=a")), taking(1, "path=/")}
	if s.parts(false, peeking...) {
		t.Error("a peek at a full limit lets the request in")
	}
	s.want(1, 0, 0, 2)
	// Peeks alone are nothing to the candidate, and refunds are done and not compared.
	s.parts(false, peeking[0])
	s.parts(false, with(headgate.OpRefund, taking(2, "user=a")))
	s.want(1, 0, 0, 2)
	s.parts(false, taking(2, "user=a"))
	s.parts(false, taking(2, "user=a"))
	s.want(2, 0, 0, 3)
	s.parts(false, taking(2, "user=a")) // 4 of 5 are used. Without the refund the one before had been too many.
	s.want(2, 1, 0, 3)
}

// TestTogetherWithLimitsOfTheirOwn: a limit that comes with a descriptor is not the
// policies', and binds by both.
func TestTogetherWithLimitsOfTheirOwn(t *testing.T) {
	rules := []policy.Rule{when("path", limits("path", 100, "path"))}
	s := newStage(t, set(t, rules), set(t, rules), Options{}).run()
	own := taking(1, "user=a")
	own.Brought = perHour(decide.BroughtRule, 2)
	for range 3 {
		s.parts(false, taking(1, "path=/"), own)
	}
	s.want(2, 1, 0, 0)
	nothing := taking(1, "user=a")
	nothing.Nothing = true
	s.parts(false, taking(1, "path=/"), nothing)
	s.want(2, 2, 0, 0)
	// Where there is nothing else, no policy has a say.
	s.parts(false, own)
	s.parts(false, nothing)
	s.want(2, 2, 0, 0)
}

// TestTogetherCannot: what the candidate does not know, and who has no answer.
func TestTogetherCannot(t *testing.T) {
	direct := policy.Rule{Limits: perHour("mail", 1), Direct: true}
	other := []policy.Rule{limits("other", 5, "user")}
	s := newStage(t, set(t, append(other, direct)), set(t, other), Options{}).run()
	named := taking(1, decide.RuleEntry+"=mail", "user=a")
	s.parts(false, taking(1, "user=a"), named)
	s.parts(false, with(headgate.OpRefund, named))
	if r := s.report(); r.Undecidable != 1 || r.Compared != 1 || len(r.Rules) != 1 || r.Rules[0].Rule != "mail" || r.NotCompared != (NotCompared{}) {
		t.Errorf("%+v", r)
	}
	s.Decider = &decide.Over{Rules: s.Policy, Store: broken{s.liveStore}, Decided: s.trial.Decided}
	down := &decide.Request{Ask: decide.Ask{Parts: &decide.Parts{Domain: "d", List: []decide.Part{taking(1, "user=down")}}}}
	if o := down.Decide(t.Context(), s.Decider); !errors.Is(o.Err, headgate.ErrUnavailable) {
		t.Error(o.Err)
	}
	if r := s.report(); r.NotCompared.Undecided != 1 {
		t.Errorf("%+v", r.NotCompared)
	}
	away := newStage(t, set(t, other), set(t, other), Options{Store: broken{memory.New()}}).run()
	away.parts(false, taking(1, "user=down"))
	away.parts(false, with(headgate.OpRefund, taking(1, "user=down")))
	if r := away.report(); r.NotCompared.Unanswered != 2 || r.Compared != 0 {
		t.Errorf("%+v", r.NotCompared)
	}
}

// nestedPolicy is that of a configuration of envoyproxy/ratelimit.
func nestedPolicy(t *testing.T, nodes ...nested.Node) decide.Policy {
	t.Helper()
	tree, set, err := nested.New([]nested.Domain{{Name: "d", Nodes: nodes}})
	if err != nil {
		t.Fatal(err)
	}
	return decide.Policy{Set: set, Nested: tree, Version: 1}
}

func perYear(count int64) *nested.Limit {
	return &nested.Limit{Count: count, Period: 365 * 24 * time.Hour}
}

// TestTogetherNested: a candidate that is a configuration of envoyproxy/ratelimit is
// asked for limits where the one in force has none.
func TestTogetherNested(t *testing.T) {
	free := perYear(0)
	free.Unlimited = true
	live := nestedPolicy(t, nested.Node{Key: "user", Limit: perYear(3)}, nested.Node{Key: "user", Value: "root", Limit: perYear(0)})
	next := nestedPolicy(t, nested.Node{Key: "user", Limit: perYear(3), Nodes: []nested.Node{{Key: "path", Limit: perYear(1)}}},
		nested.Node{Key: "user", Value: "root", Limit: free})
	s := newStage(t, live.Set, next.Set, Options{}).run()
	s.live.Store(&live)
	s.candidate.Store(&next)
	for range 2 {
		s.parts(false, taking(1, "user=a"), taking(1, "user=a", "path=/"))
	}
	r := s.want(1, 0, 1, 0)
	if k := r.TopNewlyDenied; len(k) != 1 || k[0].Rule != "d.user.path" || k[0].Key != "a|/" {
		t.Errorf("newly denied is %+v", k)
	}
	s.parts(false, taking(1, "user=root"))
	r = s.want(1, 0, 1, 1)
	if k := r.TopNewlyAdmitted; len(k) != 1 || k[0].List != "d.user_root" {
		t.Errorf("newly admitted is %+v", k)
	}
	// Two descriptors of one counter are added up.
	s.parts(false, taking(1, "user=b"), taking(1, "user=b"))
	s.parts(false, taking(1, "user=b"), taking(1, "user=b"))
	s.want(2, 1, 1, 1)
}

// TestNestedDescriptor: one ordered descriptor may come by the other doors as well.
func TestNestedDescriptor(t *testing.T) {
	live := nestedPolicy(t, nested.Node{Key: "user", Limit: perYear(3)})
	next := nestedPolicy(t, nested.Node{Key: "user", Limit: perYear(2)})
	s := newStage(t, live.Set, next.Set, Options{}).run()
	s.live.Store(&live)
	s.candidate.Store(&next)
	asked := policy.Descriptor{{Name: nested.DomainEntry, Value: "d"}, user("anna")}
	for i := range 4 {
		s.ask(headgate.OpTake, asked)
		if i == 1 {
			s.want(2, 0, 0, 0) // What the policies look at is known from now on.
		}
	}
	s.want(2, 1, 1, 0)
	s.ask(headgate.OpRefund, asked)
	s.ask(headgate.OpTake, asked)
	s.want(3, 1, 1, 0)
}

// TestTogetherIsTheSame: a copy of the policy in force finds no difference, whatever is
// asked, so that what it finds is due to the policy.
func TestTogetherIsTheSame(t *testing.T) {
	shared := perYear(5)
	shared.Name, shared.Replaces = "shared", []string{"each"}
	each := perYear(4)
	each.Name = "each"
	rules := []policy.Rule{limits("user", 9, "user"), when("path", limits("path", 7)), when("user|path", limits("both", 6, "user", "path")), {Limits: perHour("mail", 8), Direct: true}}
	rules[1].Cost, rules[2].Replaces = 2, []string{"user"}
	deny := policy.ListEntry{Name: "no", Match: []policy.Condition{policy.Equal("path", "/no")}}
	allow := policy.ListEntry{Name: "yes", Match: []policy.Condition{policy.Equal("path", "/yes")}}
	flat := decide.Policy{Set: set(t, rules, policy.Denied(deny), policy.Allowed(allow)), Version: 1}
	tree := nestedPolicy(t,
		nested.Node{Key: "user", Limit: each, Nodes: []nested.Node{{Key: "path", Limit: perYear(3)}, {Key: "path", Value: "/no", Limit: perYear(0)}}},
		nested.Node{Key: "path", Value: "/*", Share: true, Limit: shared})
	for name, p := range map[string]decide.Policy{"rules": flat, "nested": tree} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, 5))
			admitted, denied := 0, 0
			for range 20 {
				s := newStage(t, p.Set, p.Set, Options{}).run()
				s.live.Store(&p)
				s.candidate.Store(&p)
				for range 60 {
					var list []decide.Part
					takes := false
					for range 1 + r.IntN(4) {
						user, path := fmt.Sprint("user=", r.IntN(3)), []string{"path=/a", "path=/b", "path=/no", "path=/yes"}[r.IntN(4)]
						part := taking(1+r.Int64N(2), [][]string{{user}, {path}, {user, path}, {decide.RuleEntry + "=mail", user}}[r.IntN(4)]...)
						switch r.IntN(9) {
						case 0:
							part.Op = headgate.OpPeek
						case 1:
							part.Op = headgate.OpRefund
						case 2:
							part.Brought = perHour(decide.BroughtRule, 10)
						}
						takes = takes || part.Op == headgate.OpTake
						list = append(list, part)
					}
					switch ok := s.parts(r.IntN(4) == 0, list...); {
					case ok && takes:
						admitted++
					case takes:
						denied++
					}
				}
				if r := s.report(); r.NewlyAdmitted+r.NewlyDenied+r.Undecidable != 0 || r.NotCompared != (NotCompared{}) {
					t.Fatalf("%+v", r)
				}
			}
			if admitted < 100 || denied < 100 {
				t.Errorf("%d admitted and %d denied", admitted, denied)
			}
		})
	}
}
