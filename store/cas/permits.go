package cas

import (
	"context"
	"encoding/binary"
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
		c := &b.cells[b.places[name]]
		raw := c.raw
		if c.write {
			raw = c.value
		}
		book, err := readBook(raw)
		if err != nil {
			return fmt.Errorf("%w: the permits of a key cannot be read: %w", headgate.ErrUnavailable, err)
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
		c.write, c.value, c.expires, c.due = true, nil, headgate.Instant(keep), 0
		if keep > now {
			c.value = appendBook(nil, book)
		}
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

func appendBook(b []byte, book *store.Book) []byte {
	b = binary.AppendVarint(append(b, version), book.Epoch)
	b = binary.AppendUvarint(b, uint64(len(book.Leases)))
	for i := range book.Leases {
		h := &book.Leases[i]
		b = binary.AppendVarint(appendText(b, h.Holder), h.Until)
		b = binary.AppendUvarint(b, uint64(h.TTL))
		b = binary.AppendVarint(b, h.Epoch)
		revoked := byte(0)
		if h.Revoked {
			revoked = 1
		}
		b = binary.AppendUvarint(append(b, revoked), uint64(len(h.Slots)))
		for _, slot := range h.Slots {
			b = binary.AppendUvarint(b, uint64(slot))
		}
	}
	b = binary.AppendUvarint(b, uint64(len(book.Line)))
	for i := range book.Line {
		p := &book.Line[i]
		b = binary.AppendVarint(appendText(b, p.Holder), p.Until)
		b = binary.AppendUvarint(b, uint64(p.TTL))
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(p.Cost)), uint64(p.Passed))
	}
	return b
}

// readBook is the inverse of appendBook. Nil is an empty book.
func readBook(b []byte) (*store.Book, error) {
	book := new(store.Book)
	if b == nil {
		return book, nil
	}
	r := reader{left: b}
	if v := r.byte(); v != version {
		return nil, fmt.Errorf("it begins with version %d, and %d is known", v, version)
	}
	book.Epoch = r.micros()
	for range r.uint(store.MaxPermits) {
		h := store.Held{Holder: r.string(store.MaxHolder), Until: r.micros(), TTL: int64(r.uint(maxMicros)), Epoch: r.micros(), Revoked: r.byte() == 1}
		for range r.uint(store.MaxPermits) {
			h.Slots = append(h.Slots, int(r.uint(store.MaxPermits)))
		}
		if book.Leases = append(book.Leases, h); r.err != nil {
			return nil, r.err
		}
	}
	for range r.uint(store.MaxPermitQueue) {
		p := store.Place{Holder: r.string(store.MaxHolder), Until: r.micros(), TTL: int64(r.uint(maxMicros))}
		p.Cost, p.Passed = int64(r.uint(store.MaxPermits)), int64(r.uint(store.MaxPermits))
		if book.Line = append(book.Line, p); r.err != nil {
			return nil, r.err
		}
	}
	return book, r.end()
}
