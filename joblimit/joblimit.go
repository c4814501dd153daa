// Package joblimit applies a whole policy to jobs: those of workers, consumers of queues and
// scheduled tasks, for which no HTTP request or gRPC call says who asks.
//
// # Basics
//
// A [Job] is described by the entries that the rules look at. A [Limiter] asks the store, and
// returns a permit or a refusal that says when to try again:
//
//	rules := policy.NewSource(set)
//	jobs, err := joblimit.New(joblimit.Config{Name: "mails", Store: store, Rules: rules})
//	…
//	permit, err := jobs.Acquire(ctx, joblimit.Job{Entries: policy.Descriptor{{Name: "tenant", Value: "acme"}}})
//	if rejection, ok := errors.AsType[*flow.Rejection](err); ok {
//		return comeAgain(rejection.RetryAfter)
//	}
//	defer permit.Done(flow.Ignore)
//
// [Limiter.Gate] offers the same as a [flow.Gate], for the consumers of contrib/kafka and
// contrib/rabbitmq, and for chains with other gates.
//
// # Caveats
//
// If the store does not answer, its error is returned. To follow each rule's on_store_error
// instead, put a fallback around the store (store/layered/fallback).
package joblimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/inprogress"
)

// Config says what a Limiter decides by.
type Config struct {
	// Name is the name of the limiter in rejections. Required.
	Name string
	// Store has the counters. Required.
	Store headgate.Store
	// Rules has the policy, which may change while it is in use. Required.
	Rules *policy.Source
	// Keeper has the permits of the policy's bounds on work in progress. If it is nil, the limiter
	// makes one of its own. Rules with shared permits need a Keeper.
	Keeper *inprogress.Keeper
	// MaxDelay is how long Acquire holds a job for a leaky bucket; 30 seconds if it is zero.
	MaxDelay time.Duration
}

// Job describes the job to decide about.
type Job struct {
	// Entries are the facts that the rules look at. A rule does not bind a job without the entries
	// that it counts by.
	Entries policy.Descriptor
	// Cost is how many units the job takes, 1 to headgate.MaxCount. Zero means one.
	Cost int64
}

// Limiter decides which jobs may begin. It is safe for concurrent use; make it with [New].
type Limiter struct {
	config Config
}

// New returns a limiter. The error is a [*headgate.InvalidError] with every mistake in the Config.
func New(c Config) (*Limiter, error) {
	var problems headgate.Problems
	if c.Name == "" {
		problems.Add("Name", "Name is empty; it stands in rejections")
	}
	if c.Store == nil {
		problems.Add("Store", "Store is nil")
	}
	if c.Rules == nil {
		problems.Add("Rules", "Rules is nil; make it with policy.NewSource")
	}
	switch {
	case c.MaxDelay < 0:
		problems.Add("MaxDelay", "MaxDelay is %v, must not be negative", c.MaxDelay)
	case c.MaxDelay == 0:
		c.MaxDelay = admission.DefaultMaxDelay
	}
	if len(problems) > 0 {
		return nil, problems.Err("limiter of jobs")
	}
	if c.Keeper == nil {
		c.Keeper = inprogress.New(inprogress.Options{})
	}
	err := c.Rules.Use(func(set *policy.Set) (func(), error) {
		if err := c.Keeper.Check(set); err != nil {
			return nil, err
		}
		// Check has accepted the set, so Use cannot fail.
		return func() { _ = c.Keeper.Use(set) }, nil
	})
	if err != nil {
		return nil, err
	}
	return &Limiter{c}, nil
}

// Acquire charges the job to all limits that bind it, and takes the permits for work in progress.
// If any of them refuses, it charges and takes nothing. It waits for permits where a rule says so,
// and for the delay of a leaky bucket. The error is:
//
//   - a [*flow.Rejection], found by errors.As: a limit denies the job, with the exact RetryAfter
//     and the decision in a [*headgate.DeniedError]; or too much is in progress, as an
//     [*inprogress.Refusal]; or the policy's deny list contains the job, which may then never
//     begin;
//   - a [*headgate.InvalidError] or another error of headgate.ErrInvalid: the policy cannot be
//     applied to this job;
//   - the context's error, wrapped;
//   - the store's error.
//
// Give the permit back when the job has ended. With flow.Unused, the whole charge is refunded. For
// rules that charge by the outcome, flow.Success counts as the status 200, and flow.Overload as
// 503; with flow.Ignore and flow.Canceled, the job stays charged.
func (l *Limiter) Acquire(ctx context.Context, job Job) (flow.Permit, error) {
	return l.acquire(ctx, job, l.config.Keeper.Enter, l.config.MaxDelay)
}

// TryAcquire is like Acquire but never waits: jobs that would have to wait are refused.
func (l *Limiter) TryAcquire(ctx context.Context, job Job) (flow.Permit, error) {
	return l.acquire(ctx, job, l.config.Keeper.TryEnter, 0)
}

type enter func(ctx context.Context, bounds []policy.Bound, dst []flow.Permit) ([]flow.Permit, error)

func (l *Limiter) acquire(ctx context.Context, job Job, enter enter, most time.Duration) (flow.Permit, error) {
	if job.Cost == 0 {
		job.Cost = 1
	}
	h := &held{rules: l.config.Rules.Set(), charge: admission.Charge{Store: l.config.Store, Failure: admission.FailClosed, MaxDelay: most}}
	found, err := h.rules.Decide(job.Entries, job.Cost, nil)
	switch {
	case err != nil:
		return flow.Permit{}, fmt.Errorf("joblimit: %q: which rules bind the job: %w", l.config.Name, err)
	case found.Denied != nil:
		return flow.Permit{}, l.denied(&headgate.DeniedError{
			Decision: headgate.Decision{RetryAfter: headgate.Never}, Reason: fmt.Sprintf("the entry %q of the deny list has the job", found.Denied.Name),
		})
	case found.Allowed != nil:
		return flow.Permit{}, nil
	}
	// Permits come first, because giving them back costs nothing.
	if h.permits, err = enter(ctx, found.Bounds, nil); err != nil {
		return flow.Permit{}, l.failed(ctx, err)
	}
	admitted := false
	defer func() { // after a panic of the store, too
		if !admitted {
			inprogress.Leave(h.permits, flow.Unused)
		}
	}()
	outcome := admission.Passed
	if h.charge.Checks = found.Checks; len(found.Checks) > 0 {
		outcome, err = h.charge.Decide(ctx)
	}
	if outcome == admission.Passed {
		admitted = true
		return h.Issue(h), nil
	}
	if outcome == admission.Denied {
		return flow.Permit{}, l.denied(&headgate.DeniedError{Decision: *h.charge.Verdict.Deciding()})
	}
	return flow.Permit{}, l.failed(ctx, err)
}

// denied returns the rejection for a job that a limit or the deny list denies.
func (l *Limiter) denied(cause *headgate.DeniedError) *flow.Rejection {
	again := cause.Decision.RetryAfter
	return &flow.Rejection{Gate: l.config.Name, Reason: flow.ReasonRate, RetryAfter: again, Retry: again != headgate.Never, Cause: cause}
}

// failed returns the error for a job that was not decided, or that got no permit.
func (l *Limiter) failed(ctx context.Context, err error) error {
	if _, refused := errors.AsType[*flow.Rejection](err); refused {
		return err
	}
	if ctx.Err() != nil {
		return flow.Ended(ctx, l.config.Name)
	}
	return fmt.Errorf("joblimit: %q: asking the store: %w", l.config.Name, err)
}

// held is what the limiter keeps for a job's permit.
type held struct {
	flow.Slot
	rules   *policy.Set
	charge  admission.Charge
	permits []flow.Permit
}

// GiveBack implements [flow.Holder].
func (h *held) GiveBack(outcome flow.Outcome) {
	inprogress.Leave(h.permits, outcome)
	var back []headgate.Check
	switch outcome {
	case flow.Unused:
		back = h.charge.Charged()
	case flow.Success:
		back = h.uncharged(http.StatusOK)
	case flow.Overload:
		back = h.uncharged(http.StatusServiceUnavailable)
	}
	// If the refund fails, the charge stays until the limit has refilled.
	_ = h.charge.Refund(context.Background(), back)
}

// uncharged returns the checks of rules that do not charge jobs with this status.
func (h *held) uncharged(status int) []headgate.Check {
	if !h.rules.Awaits(h.charge.Checks) {
		return nil
	}
	return admission.Uncharged(h.rules, h.charge.Charged(), status)
}

// Bind implements [flow.Holder].
func (h *held) Bind(ctx context.Context, _ flow.Permit) context.Context {
	return inprogress.Context(ctx, h.permits)
}

// Gate returns a gate that asks the limiter. entries returns the entries of a request to the gate.
// The request's Cost is that of the job; the limiter ignores its other fields. Gate panics if
// entries is nil.
func (l *Limiter) Gate(entries func(flow.Request) policy.Descriptor) flow.Gate {
	if entries == nil {
		panic("headgate: joblimit: Gate needs a function")
	}
	return &gate{l, entries}
}

type gate struct {
	limiter *Limiter
	entries func(flow.Request) policy.Descriptor
}

// Acquire implements [flow.Gate].
func (g *gate) Acquire(ctx context.Context, r flow.Request) (flow.Permit, error) {
	if err := r.Validate(); err != nil {
		return flow.Permit{}, err
	}
	return g.limiter.Acquire(ctx, Job{g.entries(r), r.Cost})
}

// TryAcquire implements [flow.Gate].
func (g *gate) TryAcquire(ctx context.Context, r flow.Request) (flow.Permit, error) {
	if err := r.Validate(); err != nil {
		return flow.Permit{}, err
	}
	return g.limiter.TryAcquire(ctx, Job{g.entries(r), r.Cost})
}
