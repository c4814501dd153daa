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
	ask       decide.Ask
	parts     decide.Parts
	decisions []headgate.Decision
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
	if j.settles {
		w.settle(ctx, j)
		return
	}
	t.learn(j.live.Set, candidate.Set)
	defer w.reset()
	j.fill(&w.ask, &w.parts, candidate)
	err := w.bind(j)
	if err == nil {
		w.decisions, err = (&decide.Over{Store: t.options.Store}).Take(ctx, &w.ask, w.decisions[:0])
	}
	unknown := errors.Is(err, headgate.ErrInvalid) || errors.Is(err, policy.ErrUnknownRule)
	switch takes := w.ask.Takes(); {
	case err == nil && takes:
		w.compare(j, candidate, answerOf(&w.ask, w.decisions))
	case err == nil, unknown && !takes:
		// The request itself was told as undecidable, of which this is a refund.
	case unknown, errors.Is(err, headgate.ErrConflict):
		w.cannot(j, candidate, err)
	default:
		t.miss(j.live, unanswered)
	}
}

func (w *worker) reset() {
	clear(w.ask.Checks)
	w.ask = decide.Ask{Checks: w.ask.Checks[:0]}
	w.parts.Reset()
}

// bind finds what binds the request by the candidate.
func (w *worker) bind(j *job) (err error) {
	ask := &w.ask
	if w.trial.ledger == nil {
		ask.Reserve, ask.Terms = false, headgate.Terms{}
	}
	if len(j.named) == 0 || len(j.entries) > 0 {
		if err := ask.Resolve(); err != nil {
			return err
		}
	}
	for i := range j.named {
		n := &j.named[i]
		if ask.Checks, err = ask.Policy.AppendCheck(ask.Checks, n.Rule, n.Key, n.Cost); err != nil {
			return err
		}
	}
	if j.op != headgate.OpRefund && j.op != headgate.OpReset {
		return nil
	}
	for i := range ask.Checks {
		ask.Checks[i].At = headgate.Instant(j.at)
	}
	if j.op == headgate.OpRefund && ask.Parts == nil {
		// A refund may be of some rules only: of those that give back what ends with
		// a certain status. The candidate's own rules go with them.
		ask.Checks = slices.DeleteFunc(ask.Checks, func(c headgate.Check) bool {
			return j.live.Rule(c.Rule.Name()) != nil && !slices.Contains(j.rules, c.Rule.Name())
		})
	}
	return nil
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
	if unknown, ok := errors.AsType[*policy.UnknownRuleError](err); ok {
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
func (w *worker) compare(j *job, candidate decide.Policy, own answer) {
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
		came, by, denies = newlyAdmitted, j.live, j.answer
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
