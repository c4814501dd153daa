package cas

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var _ store.Permits = (*Ledger)(nil)

// withBook calls do with the book of a key, and writes the book back if do reports that it
// has changed. It may call do again, on another book, if the attempt is repeated.
func (l *Ledger) withBook(ctx context.Context, key string, do func(b *store.Book, now int64) bool) error {
	// The name of no counter begins like this.
	name := l.settings.prefix + "\x00permit " + key
	return l.turns.do(ctx, []string{name}, func(b *batch) error {
		raw, book := b.value(name), new(store.Book)
		if raw != nil {
			if err := decode(raw, func(c *codec) { codeBook(c, book) }); err != nil {
				return fmt.Errorf("%w: the permits of a key cannot be read: %w", headgate.ErrUnavailable, err)
			}
		}
		now := int64(b.now)
		changed := book.Look(now)
		if !do(book, now) && !changed {
			return nil
		}
		keep := book.Keep(now)
		if keep <= now && raw == nil {
			return nil
		}
		var value []byte
		if keep > now {
			value = encode(func(c *codec) { codeBook(c, book) })
		}
		b.setValue(name, value, headgate.Instant(keep), 0)
		return nil
	})
}

// Acquire implements [store.Permits].
func (l *Ledger) Acquire(ctx context.Context, r store.PermitRequest) (store.PermitAnswer, error) {
	if err := r.Validate(); err != nil {
		return store.PermitAnswer{}, err
	}
	var a store.PermitAnswer
	var refused error
	if err := l.withBook(ctx, r.Key, func(b *store.Book, now int64) bool {
		n := len(b.Line)
		a, refused = b.Acquire(&r, now)
		return a.Granted() || a.Waiting || len(b.Line) != n
	}); err != nil {
		return store.PermitAnswer{}, err
	}
	return a, refused
}

// Renew implements [store.Permits].
func (l *Ledger) Renew(ctx context.Context, key, holder string, epoch int64, ttl time.Duration) (store.Lease, error) {
	if err := store.ValidateRenew(key, holder, epoch, ttl); err != nil {
		return store.Lease{}, err
	}
	var renewed store.Lease
	var refused error
	if err := l.withBook(ctx, key, func(b *store.Book, now int64) bool {
		renewed, refused = b.Renew(key, holder, epoch, ttl, now)
		return refused == nil
	}); err != nil {
		return store.Lease{}, err
	}
	return renewed, refused
}

// Release implements [store.Permits].
func (l *Ledger) Release(ctx context.Context, key, holder string, epoch int64) (bool, error) {
	if err := store.ValidateRelease(key, holder, epoch); err != nil {
		return false, err
	}
	return l.changes(ctx, key, func(b *store.Book, now int64) bool { return b.Release(holder, epoch, now) })
}

// Revoke implements [store.Permits].
func (l *Ledger) Revoke(ctx context.Context, key, holder string) (bool, error) {
	if err := store.ValidateRelease(key, holder, 0); err != nil {
		return false, err
	}
	return l.changes(ctx, key, func(b *store.Book, now int64) bool { return b.Revoke(holder, now) })
}

// changes calls withBook with a function that reports whether it changed the book, and
// reports the same.
func (l *Ledger) changes(ctx context.Context, key string, do func(b *store.Book, now int64) bool) (bool, error) {
	var changed bool
	if err := l.withBook(ctx, key, func(b *store.Book, now int64) bool {
		changed = do(b, now)
		return changed
	}); err != nil {
		return false, err
	}
	return changed, nil
}

// Holders implements [store.Permits].
func (l *Ledger) Holders(ctx context.Context, key string) (store.PermitHolders, error) {
	if err := store.ValidateHolders(key); err != nil {
		return store.PermitHolders{}, err
	}
	var all store.PermitHolders
	if err := l.withBook(ctx, key, func(b *store.Book, now int64) bool {
		all = b.Holders(key, now)
		return false
	}); err != nil {
		return store.PermitHolders{}, err
	}
	return all, nil
}

// maxMicros is more than any duration in a book.
const maxMicros = uint64(store.MaxTTL / time.Microsecond)

// codeBook describes the bytes of a book.
func codeBook(c *codec, book *store.Book) {
	c.version()
	signed(c, &book.Epoch)
	list(c, &book.Leases, store.MaxPermits, func(h *store.Held) {
		c.text(&h.Holder, store.MaxHolder)
		signed(c, &h.Until)
		unsigned(c, &h.TTL, maxMicros)
		signed(c, &h.Epoch)
		c.flags(&h.Revoked)
		list(c, &h.Slots, store.MaxPermits, func(slot *int) { unsigned(c, slot, store.MaxPermits) })
	})
	list(c, &book.Line, store.MaxPermitQueue, func(p *store.Place) {
		c.text(&p.Holder, store.MaxHolder)
		signed(c, &p.Until)
		unsigned(c, &p.TTL, maxMicros)
		unsigned(c, &p.Cost, store.MaxPermits)
		unsigned(c, &p.Passed, store.MaxPermits)
	})
}
