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

// separator separates rule and key in the store's names. A rule's name contains no space.
const separator = " "

// StoreKey is the name under which a store counts the permits of a rule and a key.
func StoreKey(rule, key string) string { return rule + separator + key }

// terms are the settings of a gate over all processes. The zero value means that there is none.
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

// gate makes the gate. Requests bring their own limits, so the gate has the largest of them.
func (t terms) gate(permits store.Permits) (*shared.Gate, error) {
	c := shared.Config{
		Name: t.name, Prefix: t.name + separator, Limit: t.limit, TTL: t.ttl, Queue: t.queue, MaxWait: t.wait, Owner: t.owner, OnError: t.onError,
	}
	if t.onError == headgate.OnErrorLocal {
		c.Share = t.limit
	}
	return shared.New(permits, c)
}

// retire closes a gate when its last permit has been given back, or when the keeper is closed.
func (k *Keeper) retire(gate *shared.Gate) {
	if gate != nil {
		k.retired.Go(func() {
			// Close fails only if Keeper.Close gives up, and that reports it.
			_ = gate.Close(k.closing)
		})
	}
}

// Close refuses new requests under rules with Shared, and waits until all of their permits have
// been given back. If the context ends first, the remaining permits are lost, and the error wraps
// the context's cause. A keeper without Permits has nothing to close.
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
