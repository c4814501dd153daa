package inprogress

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow/shared"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// separator stands between a rule and a key in the names of the store. No rule's name has
// a space.
const separator = " "

// StoreKey is the name under which a store counts the permits of a rule and a key.
func StoreKey(rule, key string) string { return rule + separator + key }

// terms are what a gate over all processes is made of. The zero value is for none.
type terms struct {
	name, owner string
	limit       int64
	ttl, wait   time.Duration
	queue       int
	onError     headgate.OnError
}

func (k *Keeper) terms(r *policy.Rule) terms {
	p := r.InProgress
	if !p.Shared {
		return terms{}
	}
	t := terms{
		name: r.Name, owner: k.options.Owner, limit: p.Most(), ttl: p.Term(), wait: p.Wait, queue: p.Waiting(), onError: r.OnError,
	}
	for i := range r.Overrides {
		t.limit = max(t.limit, r.Overrides[i].InProgress)
	}
	if t.onError == headgate.OnErrorReturn {
		t.onError = k.options.OnError
	}
	return t
}

// gate makes the gate. Requests bring limits of their own, so that of the gate is the
// largest.
func (t terms) gate(permits store.Permits) (*shared.Gate, error) {
	c := shared.Config{
		Name: t.name, Prefix: t.name + separator, Limit: t.limit, TTL: t.ttl, Queue: t.queue, MaxWait: t.wait, Owner: t.owner, OnError: t.onError,
	}
	if t.onError == headgate.OnErrorLocal {
		c.Share = t.limit
	}
	return shared.New(permits, c)
}

// retire closes a gate when its last permit was given back, or the keeper is closed.
func (k *Keeper) retire(gate *shared.Gate) {
	if gate != nil {
		k.retired.Go(func() {
			// It fails only if Close gives up, whose caller is told.
			_ = gate.Close(k.closing)
		})
	}
}

// Close refuses what comes under rules with Shared from now on, and waits until all of
// their permits were given back. If the context ends before, those that are left are lost,
// and the error wraps the context's cause. A keeper without Permits has nothing to close.
func (k *Keeper) Close(ctx context.Context) error {
	k.mu.Lock()
	for _, one := range *k.kept.Load() {
		k.retire(one.all)
	}
	k.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { k.giveUp(context.Cause(ctx)) })
	defer stop()
	k.retired.Wait()
	return context.Cause(k.closing)
}

// Lost reports whether the context of [Context] has ended because a shared permit was
// lost.
func Lost(ctx context.Context) bool {
	return ctx.Err() != nil && errors.Is(context.Cause(ctx), shared.ErrLost)
}
