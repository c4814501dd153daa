package candidate

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// worker compares one decision after the other.
type worker struct {
	trial     *Trial
	checks    []headgate.Check
	decisions []headgate.Decision
	parts     decide.Parts
}

// safely is do, of which no defect ends the service.
func (w *worker) safely(ctx context.Context, j *job) {
	defer func() {
		if p := recover(); p != nil {
			w.trial.miss(j.live, unanswered)
			w.trial.options.Logger.LogAttrs(ctx, slog.LevelError, "a comparison with the candidate caused a panic", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		}
	}()
	w.do(ctx, j)
}

// do compares one decision, or does to the candidate's counters what was done to
// those in force.
func (w *worker) do(ctx context.Context, j *job) {
	t := w.trial
	candidate := t.options.Policy()
	if t.options.Clock != nil {
		t.options.Clock.set(j.time)
	}
	if j.kind == settle {
		w.settle(ctx, j)
		return
	}
	t.learn(j.live.Set, candidate.Set)
	if j.kind == together {
		w.together(ctx, j, candidate)
		return
	}
	list, err := w.bind(candidate, j)
	defer func() { clear(w.checks) }()
	switch {
	case err != nil && (j.kind == refund || j.kind == reset):
		return // The request itself was told as undecidable.
	case err != nil:
		w.cannot(j, candidate, err)
		return
	case j.kind == refund || j.kind == reset:
		if err := w.mirror(ctx, j); err != nil {
			t.miss(j.live, unanswered)
		}
		return
	}
	err = w.take(ctx, j)
	if w.failed(j, candidate, err) {
		return
	}
	w.compare(j, candidate, saidOf(list, w.checks, w.decisions))
}

// failed counts a request that the candidate, or its store, has no answer for.
func (w *worker) failed(j *job, candidate decide.Policy, err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, headgate.ErrInvalid), errors.Is(err, headgate.ErrConflict), errors.Is(err, policy.ErrUnknownRule):
		w.cannot(j, candidate, err)
	default:
		w.trial.miss(j.live, unanswered)
	}
	return true
}

// together decides a request of several descriptors as the service does.
func (w *worker) together(ctx context.Context, j *job, candidate decide.Policy) {
	defer w.parts.Reset()
	j.fill(&w.parts, candidate)
	err := w.parts.Resolve()
	if err == nil {
		err = w.parts.Take(ctx, &decide.Over{Store: w.trial.options.Store})
	}
	switch {
	case err == nil && j.takes():
		w.compare(j, candidate, saidOfParts(&w.parts))
	case err != nil && (j.takes() || !errors.Is(err, headgate.ErrInvalid) && !errors.Is(err, policy.ErrUnknownRule)):
		// Of refunds alone, what the candidate does not know is nothing to it.
		w.failed(j, candidate, err)
	}
}

// bind finds what binds the request by the candidate: checks, or the entry of the
// deny list.
func (w *worker) bind(candidate decide.Policy, j *job) (*policy.ListEntry, error) {
	w.checks = w.checks[:0]
	for i := range j.named {
		n := &j.named[i]
		var err error
		if w.checks, err = candidate.AppendCheck(w.checks, n.Rule, n.Key, n.Cost); err != nil {
			return nil, err
		}
	}
	if len(j.named) > 0 && len(j.entries) == 0 {
		return nil, nil
	}
	outcome, err := candidate.Decide(j.entries, j.cost, w.checks)
	if err != nil {
		return nil, err
	}
	w.checks = outcome.Checks
	return outcome.Denied, nil
}

// mirror does a refund or a reset.
func (w *worker) mirror(ctx context.Context, j *job) error {
	if len(w.checks) == 0 {
		return nil
	}
	for i := range w.checks {
		w.checks[i].At = headgate.Instant(j.at)
	}
	if j.kind == refund {
		// A refund may be of some rules only: of those that give back what ends with
		// a certain status. The candidate's own rules go with them.
		w.checks = slices.DeleteFunc(w.checks, func(c headgate.Check) bool {
			return j.live.Rule(c.Rule.Name()) != nil && !slices.Contains(j.rules, c.Rule.Name())
		})
		if len(w.checks) == 0 {
			return nil
		}
	}
	op := headgate.OpRefund
	if j.kind == reset {
		op = headgate.OpReset
	}
	var err error
	w.decisions, err = w.trial.options.Store.Take(ctx, op, w.checks, w.decisions[:0])
	return err
}

// take charges the candidate's counters, once for each id.
func (w *worker) take(ctx context.Context, j *job) (err error) {
	w.decisions = w.decisions[:0]
	if len(w.checks) == 0 {
		return nil
	}
	ledger := w.trial.ledger
	switch {
	case ledger == nil || j.kind == take:
		w.decisions, err = w.trial.options.Store.Take(ctx, headgate.OpTake, w.checks, w.decisions)
	case j.kind == takeOnce:
		w.decisions, err = ledger.TakeOnce(ctx, j.terms, w.checks, w.decisions)
	default:
		// Without an id, it was denied, and nobody will settle it.
		_, w.decisions, err = ledger.Reserve(ctx, j.terms, w.checks, w.decisions)
	}
	return err
}

// settle does a settlement to the candidate's reservation of the same id. One that
// the candidate has denied, or forgotten, is nothing to settle.
func (w *worker) settle(ctx context.Context, j *job) {
	r, err := w.trial.ledger.Recall(ctx, j.terms.ID)
	if err == nil {
		w.decisions, err = w.trial.ledger.Settle(ctx, r, unitsOf(j, &r), w.decisions[:0])
	}
	if err != nil && !errors.Is(err, headgate.ErrNoReservation) && !errors.Is(err, headgate.ErrConflict) {
		w.trial.miss(j.live, unanswered)
	}
}

// unitsOf is what the candidate's reservation is settled at: for each rule what a
// request costs the rule of that name in force, or else any of those, times the
// candidate's own factor.
func unitsOf(j *job, r *headgate.Reservation) []int64 {
	units := r.Units(slices.Max(j.costs))
	for i := range r.Checks {
		if at := slices.Index(j.rules, r.Checks[i].Rule.Name()); at >= 0 {
			units[i] = r.Units(j.costs[at])[i]
		}
	}
	return units
}

// cannot counts a request that the candidate has no answer for.
func (w *worker) cannot(j *job, candidate decide.Policy, err error) {
	var by Denier
	var unknown *policy.UnknownRuleError
	if errors.As(err, &unknown) {
		by.Rule = strings.Clone(unknown.Name)
	}
	why := errtext.Text(err)
	w.each(j, candidate, func(f *figures) {
		f.outcomes[undecidable].Add(1)
		f.why.Store(&why)
		if by != (Denier{}) {
			f.differ(split{outcome: undecidable, by: by})
		}
	})
}

// each visits the figures that the request counts in.
func (w *worker) each(j *job, candidate decide.Policy, visit func(f *figures)) {
	visit(w.trial.total)
	if f := w.trial.compared(j.live, candidate); f != nil {
		visit(f)
	}
}

// compare counts what came of the two decisions; own is the candidate's.
func (w *worker) compare(j *job, candidate decide.Policy, own said) {
	if own.admitted == j.admitted {
		came := bothDenied
		if own.admitted {
			came = bothAdmitted
		}
		w.each(j, candidate, func(f *figures) { f.outcomes[came].Add(1) })
		return
	}
	came, by, denies := newlyDenied, candidate, own
	if own.admitted { // What denies is in force, and may go.
		came, by, denies = newlyAdmitted, j.live, j.said
	}
	facts := j.facts(by, denies.part)
	c, tier := counter{Denier{Rule: denies.rule}, denies.key}, ""
	if list := denies.list; list != nil {
		c = counter{Denier{List: list.Name}, clientOf(by.Set, list, facts)}
	} else {
		tier = by.Tier(denies.rule, facts)
	}
	w.each(j, candidate, func(f *figures) {
		f.outcomes[came].Add(1)
		if f == w.trial.total {
			f.differ(split{outcome: came, by: c.by})
			return
		}
		f.differ(split{came, c.by, strings.Clone(tier)})
		if came == newlyDenied {
			f.denied.add(c)
		} else {
			f.admitted.add(c)
		}
	})
}

// maxClient bounds the text of clientOf, in bytes.
const maxClient = 256

// clientOf says which client an entry of a list has turned away, by what the entry
// looks at. Secrets are hashes.
func clientOf(set *policy.Set, list *policy.ListEntry, d policy.Descriptor) string {
	var b strings.Builder
	for i := range list.Match {
		name := list.Match[i].Entry
		value, ok := d.Get(name)
		if !ok {
			continue
		}
		if set.Secret(name) {
			value = policy.HashMark + set.Hash(name, value)
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(name + "=" + value)
	}
	if b.Len() > maxClient {
		return b.String()[:maxClient] + "…"
	}
	return b.String()
}
