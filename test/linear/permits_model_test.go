package linear

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/headgate/headgate/store"
)

// asked is what a holder asked of permits.
type asked struct {
	key, holder string
	do          permitVerb
	cost        int64
	wait        bool
	epoch       int64
}

type permitVerb uint8

const (
	acquire permitVerb = iota
	renew
	release
	revoke
	holders
)

// said is what came of it, as text that tells everything but times.
type said struct {
	text  string
	epoch int64 // of a lease that was granted or renewed
}

const (
	permitLimit = 4
	permitQueue = 3
)

// request is what the store is asked to acquire. Nothing ends while a test lasts.
func (a *asked) request() store.PermitRequest {
	r := store.PermitRequest{
		Key: a.key, Holder: a.holder, Cost: a.cost, Limit: permitLimit, TTL: store.MaxTTL, Queue: permitQueue,
	}
	if a.wait {
		r.Wait = store.MaxTTL
	}
	return r
}

func toldOf(a store.PermitAnswer, err error) said {
	switch {
	case err != nil:
		return said{text: problemOf(err)}
	case a.Granted():
		return said{fmt.Sprintf("granted %v, %d in use, %d wait", a.Lease.Fence, a.InUse, a.Line), a.Lease.Epoch}
	}
	return said{text: fmt.Sprintf("waiting %t behind %d, %d in use, %d wait", a.Waiting, a.Ahead, a.InUse, a.Line)}
}

func toldRenewed(l store.Lease, err error) said {
	if err != nil {
		return said{text: problemOf(err)}
	}
	return said{"renewed " + l.Fence.String(), l.Epoch}
}

func toldHolders(all store.PermitHolders) said {
	slices.SortFunc(all.Leases, func(a, b store.Lease) int { return int(a.Epoch - b.Epoch) })
	text := ""
	for _, l := range all.Leases {
		text += fmt.Sprintf("%s %v %t; ", l.Holder, l.Fence, l.Revoked)
	}
	for _, w := range all.Waiting {
		text += fmt.Sprintf("%s waits for %d; ", w.Holder, w.Cost)
	}
	return said{text: text}
}

func problemOf(err error) string {
	for _, known := range []error{store.ErrRevoked, store.ErrNotHeld, store.ErrOtherCost} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "unknown: " + err.Error()
}

// permitModel is a porcupine model of one key: a [store.Book] in which nothing ends. The
// epoch of a new lease is as the store says, if that is higher than the last one.
func permitModel() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			var parts [][]porcupine.Operation
			for _, key := range keys {
				var part []porcupine.Operation
				for _, o := range history {
					if o.Input.(asked).key == key {
						part = append(part, o)
					}
				}
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() any { return store.Book{} },
		Step: func(before, input, output any) (bool, any) {
			b, a, want := copied(before.(store.Book)), input.(asked), output.(said)
			now := b.Epoch
			var got said
			switch a.do {
			case acquire:
				if want.epoch > now {
					now = want.epoch
				}
				r := a.request()
				got = toldOf(b.Acquire(&r, now))
			case renew:
				got = toldRenewed(b.Renew(a.key, a.holder, a.epoch, store.MaxTTL, now))
			case release:
				got.text = fmt.Sprint(b.Release(a.holder, a.epoch, now))
			case revoke:
				got.text = fmt.Sprint(b.Revoke(a.holder, now))
			case holders:
				got = toldHolders(b.Holders(a.key, now))
			}
			return got == want, b
		},
		Equal: func(x, y any) bool { return canonical(x.(store.Book)) == canonical(y.(store.Book)) },
		DescribeOperation: func(input, output any) string {
			return fmt.Sprintf("%+v -> %+v", input, output)
		},
	}
}

func copied(b store.Book) store.Book {
	b.Leases, b.Line = slices.Clone(b.Leases), slices.Clone(b.Line)
	return b
}

// canonical tells all of a book but its times.
func canonical(b store.Book) string {
	text := fmt.Sprint(b.Epoch)
	for _, h := range b.Leases {
		text += fmt.Sprintf(" %s %d %v %t", h.Holder, h.Epoch, h.Slots, h.Revoked)
	}
	for _, p := range b.Line {
		text += fmt.Sprintf(" %s %d %d", p.Holder, p.Cost, p.Passed)
	}
	return text
}

// checkPermits looks for an order within a time.
func checkPermits(history []porcupine.Operation) porcupine.CheckResult {
	result, _ := porcupine.CheckOperationsVerbose(permitModel(), history, 2*time.Minute)
	return result
}
