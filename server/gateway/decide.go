package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/notice"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/inprogress"
	"github.com/headgate/headgate/server/decide"
)

// decision is the second stage of an exchange: whether the rules, the bounds on requests in progress
// and the upstream's load admit the request, and what it holds because they do.
type decision struct {
	id      *identified
	permits []flow.Permit
	load    upstreamLoad
	ask     decide.Ask
	charge  admission.Charge
	decided bool // the client is to be told the charge's verdict
}

// refusal is how a request ends that is not forwarded. Without a problem, nobody waits for the answer.
type refusal struct {
	outcome outcome
	problem *httplimit.Problem
}

// ended returns a refusal with a problem of its own.
func ended(why outcome, p notice.Problem) *refusal {
	problem := httplimit.Problem(p)
	return &refusal{why, &problem}
}

// decide lets the plan's policy decide about the request, and holds the request for the delay of a
// leaky bucket. It returns the outcome of a request that is admitted, or how another one ends. h are
// the headers of the answer.
func (d *decision) decide(h http.Header) (outcome, *refusal) {
	found, err := d.id.plan.policy.Decide(d.id.facts, 1, d.id.llm.reserves(), d.charge.Checks[:0])
	if err != nil {
		return 0, uncountable(err)
	}
	if d.id.llm.reserves() != nil {
		d.id.llm.call.Reserve(&d.id.g.habits, found.Checks)
	}
	return d.admit(h, found)
}

// ahead refuses a call that is denied whatever its body says, so that the body need not be read. It
// asks the deny list and, without charging them, the limits that do not look at the body.
func (d *decision) ahead(h http.Header) *refusal {
	id, c := d.id, &d.charge
	if id.plan.policy.Nested != nil {
		return nil
	}
	found := id.plan.policy.Ahead(id.facts, c.Checks[:0])
	ctx := id.r.Context()
	switch {
	case found.Denied != nil:
	case len(found.Checks) == 0:
		return nil
	default:
		ask := decide.Ask{Op: headgate.OpPeek, Descriptor: id.facts, Cost: 1, Policy: id.plan.policy, Checks: found.Checks}
		decisions, err := id.g.decider.Take(ctx, &ask, c.Verdict.Decisions[:0])
		if v := headgate.NewVerdict(decisions); err != nil || v.Allowed {
			return nil
		}
	}
	_, refused := d.admit(h, found)
	if refused != nil {
		return refused
	}
	// Something has become free since, or the store is away. The whole decision begins anew.
	if c.Unsettled() {
		if err := c.GiveBack(ctx); err != nil {
			id.g.options.Logger.LogAttrs(ctx, slog.LevelError, "units could not be refunded", slog.Any("error", err))
		}
	}
	d.leave()
	d.load.Permit.Done(flow.Unused)
	c.Reset()
	*d = decision{id: id, permits: d.permits, charge: d.charge}
	return nil
}

// admit is decide for a request about which the policy has said what binds it.
func (d *decision) admit(h http.Header, found policy.Outcome) (outcome, *refusal) {
	c, id := &d.charge, d.id
	if err := d.enter(found.Bounds); err != nil {
		return 0, d.noPermit(err)
	}
	// The queue of an upstream comes after the gates of the rules, so that a request that waits in
	// it has everything else that it needs.
	if id.refusal == nil {
		if err := d.load.enter(id); err != nil {
			d.leave()
			return 0, d.shed(h, err)
		}
	}
	ctx := id.r.Context() // the context of the permits
	c.Checks, c.Ledger = found.Checks, nil
	if id.g.settling.estimate(c.Checks) || id.llm.reserves() != nil && len(c.Checks) > 0 {
		c.Ledger, c.Terms.For = d.counters(), id.plan.policy.Term(c.Checks)
	}
	d.ask = decide.Ask{
		Op: headgate.OpTake, Descriptor: id.facts, Cost: 1, Usage: id.llm.reserves(),
		Policy: id.plan.policy, Checks: c.Checks, Denied: found.Denied, Allowed: found.Allowed,
	}
	came, err := c.Decide(ctx)
	if c.Lost != nil {
		id.g.options.Logger.LogAttrs(ctx, slog.LevelError, "units could not be refunded", slog.Any("error", c.Lost))
	}
	if came == admission.Passed && found.Denied != nil {
		came = admission.Listed
	}
	d.decided = came == admission.Passed || came == admission.Denied
	switch came {
	case admission.Passed:
		if slices.ContainsFunc(c.Verdict.Decisions, func(d headgate.Decision) bool { return d.Source == headgate.SourceOpen }) {
			return open, nil
		}
		return passed, nil
	case admission.Open:
		return open, nil
	}
	d.leave()
	switch came {
	case admission.Ended:
		if d.load.Gate != nil {
			return 0, d.shed(h, err) // the gate was asked again after a delay
		}
		return 0, contextEnded(err)
	case admission.Broken:
		// The rules are valid, so the request is the reason that they cannot be applied.
		return 0, uncountable(err)
	case admission.Listed:
		return 0, ended(listed, notice.Forbidden())
	case admission.Denied:
		p := httplimit.QuotaExceeded(&c.Verdict)
		return 0, &refusal{denied, &p}
	}
	return 0, undecided()
}

// counters are those of the request.
func (d *decision) counters() decide.Counters {
	return decide.Counters{Decider: d.id.g.decider, Ask: &d.ask}
}

// undecided is the end of a request for which there is no decision.
func undecided() *refusal {
	return ended(unavailable, notice.ReducedCapacity(admission.UnavailableFor))
}

// uncountable is the end of a request to which the rules cannot be applied.
func uncountable(err error) *refusal {
	detail := ""
	if wrong, ok := errors.AsType[*headgate.InvalidError](err); ok {
		detail = wrong.Problems.String()
	}
	return ended(refused, notice.Uncountable(detail))
}

// contextEnded is the end of a request whose context has ended.
func contextEnded(err error) *refusal {
	if errors.Is(err, context.DeadlineExceeded) {
		end := undecided()
		end.problem.Detail = "The request's deadline came before the rate limiter's decision."
		return end
	}
	return &refusal{outcome: clientGone}
}

// noPermit is the end of a request that did not get a permit.
func (d *decision) noPermit(err error) *refusal {
	full, busy := errors.AsType[*inprogress.Refusal](err)
	switch ctx := d.id.r.Context(); {
	case busy:
		return ended(crowded, notice.InProgress(full))
	case ctx.Err() != nil:
		return contextEnded(ctx.Err())
	case errors.Is(err, headgate.ErrUnavailable):
		return undecided()
	}
	return uncountable(err)
}

// shed is the end of a request that the gate of the upstream has refused. h are the headers of the
// answer.
func (d *decision) shed(h http.Header, err error) *refusal {
	rejection, rejected := errors.AsType[*flow.Rejection](err)
	switch ctx := d.id.r.Context(); {
	case rejected:
		return ended(crowded, notice.Shed(h, rejection))
	case ctx.Err() != nil:
		return contextEnded(ctx.Err())
	}
	return uncountable(err)
}

// enter takes the permits that the request needs, both for the options and for the given bounds of
// the policy.
func (d *decision) enter(bounds []policy.Bound) error {
	id := d.id
	ctx := id.r.Context()
	if id.g.busy != nil {
		own, err := id.g.busy.Decide(id.facts, 1, nil)
		if err != nil {
			return err
		}
		if d.permits, err = id.g.own.Enter(ctx, own.Bounds, d.permits); err != nil {
			return err
		}
	}
	if len(bounds) == 0 {
		return nil
	}
	held := len(d.permits)
	var err error
	if d.permits, err = id.g.keeper.Enter(ctx, bounds, d.permits); err != nil {
		d.leave()
		return err
	}
	if policy.Shared(bounds) {
		// The request must end when a permit is lost.
		id.r = id.r.WithContext(inprogress.Context(ctx, d.permits[held:]))
	}
	return nil
}

// leave gives the permits back.
func (d *decision) leave() {
	inprogress.Leave(d.permits, flow.Ignore)
	clear(d.permits)
	d.permits = d.permits[:0]
}

// limits tells the client about its limits.
func (d *decision) limits(h http.Header) {
	if d.decided {
		httplimit.WriteHeaders(h, d.id.g.options.Dialect, &d.charge.Verdict)
		notice.WriteWarning(h, d.id.g.options.Dialect, &d.charge.Verdict, d.id.plan.policy.Set)
	}
}

// newBusy returns the bounds on requests in progress in the gateway's own options, as a policy, or
// nil if there are none. It adds what is wrong with them to problems.
func newBusy(all []gatewayfile.Concurrency, hashKey []byte, problems *headgate.Problems) *policy.Set {
	if len(all) == 0 {
		return nil
	}
	var rules []policy.Rule
	for _, c := range all {
		rules = append(rules, policy.Rule{
			Name: c.Name, Match: c.Match, Per: c.Per, InProgress: &policy.InProgress{Limit: int64(c.Limit)},
		})
	}
	set, err := policy.New(rules, policy.HashKey(hashKey))
	if mistaken, ok := errors.AsType[*policy.Error](err); ok {
		for _, m := range mistaken.Mistakes {
			problems.Add("concurrency", "concurrency %q: %s", m.Rule, m.Text)
		}
	} else if err != nil {
		problems.Add("concurrency", "concurrency: %v", err)
	}
	return set
}

// Adaptive returns the numbers of the gates that find limits for upstreams, by the names of the
// upstreams.
func (g *Gateway) Adaptive() map[string]flow.Stats { return g.gates.Stats() }

// Keepers returns the keepers of the bounds in force: that of the policy and that of the options.
func (g *Gateway) Keepers() []*inprogress.Keeper { return []*inprogress.Keeper{g.keeper, g.own} }

// Gates returns the numbers of the bounds in force, of the options and of the policy, by their
// names. What they refused is counted when requests are refused.
func (g *Gateway) Gates() map[string]flow.Stats {
	var all map[string]flow.Stats
	for _, s := range append(g.keeper.Stats(), g.own.Stats()...) {
		if all == nil {
			all = make(map[string]flow.Stats)
		}
		s.Stats.Rejected = s.Refused
		all[s.Rule] = s.Stats
	}
	return all
}
