package inprogress

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/permits"
	"github.com/headgate/headgate/flow/shared"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Options configure a [Keeper]. With the zero Options, bounds hold in this process only.
type Options struct {
	// Permits gives the permits of rules with Shared, from the store that processes share; see
	// store.PermitsOf. If it is nil, such rules are refused.
	Permits store.Permits
	// Owner is the beginning of the names under which the store lists this process's permits, up to
	// 96 bytes.
	Owner string
	// OnError is for rules that leave it open. It says what happens to requests while the store
	// does not answer. With OnErrorReturn and OnErrorDeny, Enter returns the store's error. With
	// OnErrorLocal, each process keeps the whole limit by itself.
	OnError headgate.OnError
}

// Keeper keeps the bounds of a policy, which may be replaced. What is in progress is counted by a
// rule's name and a key, so it stays counted when the policy changes. It is safe for concurrent
// use. Make one with [New].
type Keeper struct {
	options Options
	mu      sync.Mutex // is held while rules change
	kept    atomic.Pointer[map[string]*kept]
	// retired counts the gates that are closed once their last permit was given back.
	retired sync.WaitGroup
	closing context.Context //nolint:containedctx // ends when Close gives up waiting
	giveUp  context.CancelCauseFunc
}

// New returns a keeper without bounds; see Use. Close it if it has Permits.
func New(options Options) *Keeper {
	k := &Keeper{options: options}
	k.closing, k.giveUp = context.WithCancelCause(context.Background())
	k.kept.Store(&map[string]*kept{})
	return k
}

// kept is the bound of one rule.
type kept struct {
	name string
	gate *permits.Gate
	// all has the permits of all processes, and terms is what it was made from. It is nil if the
	// rule counts in this process only.
	all   *shared.Gate
	terms terms
	// mayWait says that requests may wait, so that it makes sense to measure the time.
	mayWait atomic.Bool
	*counts
}

// Use puts the bounds of a set in force. New limits, waits and queues take effect at once, also for
// requests that are waiting, unless their limit came from a tariff. Permits that are held stay
// counted. If the set no longer has their rule, the requests that hold them end under the old one.
// The error is a [*headgate.InvalidError]; then nothing has changed.
func (k *Keeper) Use(set *policy.Set) error {
	if err := k.Check(set); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	rules := set.Rules()
	next := maps.Clone(*k.kept.Load())
	// A rule that is no longer in the policy is forgotten when nothing is in progress under it.
	var forgotten []*kept
	maps.DeleteFunc(next, func(name string, one *kept) bool {
		r := set.Rule(name)
		forget := (r == nil || r.InProgress == nil) && one.idle()
		if forget {
			forgotten = append(forgotten, one)
		}
		return forget
	})
	for i := range rules {
		if rules[i].InProgress == nil {
			continue
		}
		one, err := k.keep(next[rules[i].Name], &rules[i])
		if err != nil {
			return err
		}
		next[one.name] = one
	}
	k.kept.Store(&next)
	// A request may have found a rule before it was forgotten, and enter now. It then looks whether
	// the rule is still there, and this looks whether anybody has entered: one of them sees the other.
	for _, one := range forgotten {
		if one.idle() {
			k.retire(one.all)
			continue
		}
		back := maps.Clone(*k.kept.Load())
		back[one.name] = one
		k.kept.Store(&back)
	}
	return nil
}

// idle reports whether nothing is in progress under the rule, and nobody waits.
func (one *kept) idle() bool {
	return one.gate.Keys() == 0 && (one.all == nil || one.all.Stats().Keys == 0)
}

// Check returns the error that Use would return, and changes nothing.
func (k *Keeper) Check(set *policy.Set) error {
	if k.options.Permits != nil {
		return nil
	}
	rules := set.Rules()
	var problems headgate.Problems
	for i := range rules {
		if p := rules[i].InProgress; p != nil && p.Shared {
			problems.Add("in_progress", "the rule %q counts what is in progress over all processes, but the store has no permits; leave shared out", rules[i].Name)
		}
	}
	return problems.Err("policy")
}

// keep returns the bound of the rule: the given one, changed, or a new one if that is nil.
func (k *Keeper) keep(one *kept, r *policy.Rule) (*kept, error) {
	p := r.InProgress
	if one != nil {
		if now := k.terms(r); now != one.terms {
			// The store knows which permits are held, so another gate can go on where this one
			// ends.
			k.retire(one.all)
			one = &kept{name: one.name, gate: one.gate, counts: one.counts}
		}
	}
	if one == nil {
		gate, err := permits.New(permits.Config{
			Name: r.Name, Limit: p.Most(), Queue: p.Waiting(), MaxWait: p.Wait,
		})
		if err != nil {
			return nil, err
		}
		one = &kept{name: r.Name, gate: gate, counts: new(counts)}
	} else if err := errors.Join(one.gate.SetQueue(p.Waiting(), p.Wait), one.gate.SetLimit(p.Most())); err != nil {
		return nil, err
	}
	one.mayWait.Store(p.Wait > 0)
	if p.Shared && one.all == nil {
		one.terms = k.terms(r)
		var err error
		if one.all, err = one.terms.gate(k.options.Permits); err != nil {
			return nil, err
		}
	}
	return one, nil
}

// find returns the bound of a rule. A request may still be bound by a rule that is no longer in the
// policy.
func (k *Keeper) find(r *policy.Rule) (*kept, error) {
	if one := (*k.kept.Load())[r.Name]; one != nil {
		return one, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := *k.kept.Load()
	if one := now[r.Name]; one != nil {
		return one, nil
	}
	one, err := k.keep(nil, r)
	if err != nil {
		return nil, err
	}
	next := maps.Clone(now)
	next[r.Name] = one
	k.kept.Store(&next)
	return one, nil
}

// Enter takes all permits that a request needs, or none, and appends them to dst. If a rule lets
// requests wait, Enter waits for the permits, one after the other in the order of the bounds, and
// holds those that it has. The error is a [*Refusal], or that of the context, or it wraps
// headgate.ErrUnavailable if the store of shared permits did not answer.
//
// Give every permit back when the request has ended. If the request may pass a second time within
// itself, or holds shared permits, use the context that [Context] returns for it.
func (k *Keeper) Enter(ctx context.Context, bounds []policy.Bound, dst []flow.Permit) ([]flow.Permit, error) {
	return k.enterAll(ctx, bounds, dst, true)
}

// TryEnter is Enter without waiting, whatever the rules say.
func (k *Keeper) TryEnter(ctx context.Context, bounds []policy.Bound, dst []flow.Permit) ([]flow.Permit, error) {
	return k.enterAll(ctx, bounds, dst, false)
}

func (k *Keeper) enterAll(ctx context.Context, bounds []policy.Bound, dst []flow.Permit, wait bool) ([]flow.Permit, error) {
	n := len(dst)
	for i := range bounds {
		permit, err := k.enter(ctx, &bounds[i], wait)
		if err != nil {
			Leave(dst[n:], flow.Unused)
			clear(dst[n:])
			return dst[:n], err
		}
		if permit.Held() {
			dst = append(dst, permit)
		}
	}
	return dst, nil
}

func (k *Keeper) enter(ctx context.Context, b *policy.Bound, wait bool) (flow.Permit, error) {
	for {
		one, err := k.find(b.Rule)
		if err != nil {
			return flow.Permit{}, err
		}
		permit, err := one.enter(ctx, b, wait)
		if err != nil || !permit.Held() {
			return permit, err
		}
		if now := (*k.kept.Load())[one.name]; now != nil && now.gate == one.gate {
			return permit, nil
		}
		// The rule was forgotten meanwhile; see Use.
		permit.Done(flow.Unused)
	}
}

// enter takes the permits of one bound. The permit is not held if the request needs none.
func (one *kept) enter(ctx context.Context, b *policy.Bound, wait bool) (flow.Permit, error) {
	r := flow.Request{Key: b.Key, Cost: b.Units}
	// A change of the limit that all requests have applies to those that wait already.
	if p := b.Rule.InProgress; one.all != nil || p.Entry != "" || b.Limit != p.Limit {
		r.Limit = b.Limit
	}
	var began time.Time
	var gate flow.Gate = one.gate
	if one.all != nil {
		gate = one.all
	}
	ask := gate.TryAcquire
	if wait && !b.Shadow && one.mayWait.Load() {
		ask, began = gate.Acquire, time.Now()
	}
	permit, err := ask(ctx, r)
	if !began.IsZero() {
		one.waited(time.Since(began))
	}
	if rejection, refused := errors.AsType[*flow.Rejection](err); refused {
		one.refuse(rejection.Reason, b.Shadow)
		if b.Shadow {
			return flow.Permit{}, nil
		}
		return flow.Permit{}, &Refusal{*b, rejection}
	}
	if err != nil && b.Shadow && ctx.Err() == nil {
		return flow.Permit{}, nil
	}
	return permit, err
}

// Context returns a context for a request that holds the permits. If the same request passes again
// with this context, under the same rules and keys, it takes no permits and does not wait. The
// context ends when a shared permit is lost; see [Lost].
func Context(ctx context.Context, held []flow.Permit) context.Context {
	for _, p := range held {
		ctx = p.Context(ctx)
	}
	return ctx
}

// Leave gives permits back, the last one first.
func Leave(held []flow.Permit, outcome flow.Outcome) {
	for _, p := range slices.Backward(held) {
		p.Done(outcome)
	}
}
