package memory

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var _ store.Permits = (*Store)(nil)

const (
	// permitShards is how many locks the permits' keys are spread over.
	permitShards = 64
	// permitShare is the part of the store's memory that permits may take: a quarter.
	permitShare = 4
	// fewBooks is the number of keys in a shard below which it is never swept.
	fewBooks = 16
	// bookBytes is about the memory of a key, leaseBytes that of a lease or a place in line, and
	// slotBytes that of a unit.
	bookBytes, leaseBytes, slotBytes = 200, 120, 8
)

// permits are the leases of all keys.
type permits struct {
	shards [permitShards]permitShard
	most   int64        // bytes that permits may take
	bytes  atomic.Int64 // bytes that they take, about
}

type permitShard struct {
	mu    sync.Mutex // guards the other fields
	books map[string]*store.Book
	// sweepAt is the number of keys above which the shard is swept.
	sweepAt int
}

func (s *Store) permitShard(key string) *permitShard {
	return &s.permits.shards[maphash.String(s.seed, key)%permitShards]
}

// withBook calls do with the book of a key, under the lock, and keeps the book if it is still
// needed afterwards.
func (s *Store) withBook(key string, do func(b *store.Book, now int64) error) error {
	sh := s.permitShard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := int64(s.clockNow())
	b, known := sh.books[key]
	if !known {
		b = new(store.Book)
	}
	before := int64(0)
	if known {
		before = sizeOf(key, b)
	}
	err := do(b, now)
	switch {
	case b.Keep(now) > now && !known:
		if sh.books == nil {
			sh.books, sh.sweepAt = make(map[string]*store.Book), fewBooks
		}
		sh.books[key] = b
	case b.Keep(now) <= now && known:
		delete(sh.books, key)
	}
	after := int64(0)
	if b.Keep(now) > now {
		after = sizeOf(key, b)
	}
	s.permits.bytes.Add(after - before)
	if len(sh.books) > sh.sweepAt {
		s.sweepBooks(sh, now)
	}
	return err
}

// sweepBooks drops the books of a shard in which everything has ended. It runs when the number of
// keys has doubled since the last sweep, so its cost for each key is constant.
func (s *Store) sweepBooks(sh *permitShard, now int64) {
	for key, b := range sh.books {
		before := sizeOf(key, b)
		if b.Look(now); b.Keep(now) > now {
			s.permits.bytes.Add(sizeOf(key, b) - before)
			continue
		}
		delete(sh.books, key)
		s.permits.bytes.Add(-before)
	}
	sh.sweepAt = max(2*len(sh.books), fewBooks)
}

// sizeOf returns about how much memory a key takes.
func sizeOf(key string, b *store.Book) int64 {
	n := int64(bookBytes + len(key))
	for i := range b.Leases {
		n += leaseBytes + int64(len(b.Leases[i].Holder)) + slotBytes*int64(len(b.Leases[i].Slots))
	}
	for i := range b.Line {
		n += leaseBytes + int64(len(b.Line[i].Holder))
	}
	return n
}

// Acquire implements [store.Permits]. If the permits of all keys take all the memory that they may,
// the error wraps [headgate.ErrUnavailable].
func (s *Store) Acquire(ctx context.Context, r store.PermitRequest) (a store.PermitAnswer, err error) {
	if err := cmp.Or(r.Validate(), ended(ctx)); err != nil {
		return a, err
	}
	if err := s.roomForPermits(); err != nil {
		return a, err
	}
	err = s.withBook(r.Key, func(b *store.Book, now int64) error {
		a, err = b.Acquire(&r, now)
		return err
	})
	return a, err
}

// roomForPermits makes room by dropping what has ended, if necessary.
func (s *Store) roomForPermits() error {
	if s.permits.bytes.Load() < s.permits.most {
		return nil
	}
	for i := range s.permits.shards {
		sh := &s.permits.shards[i]
		sh.mu.Lock()
		s.sweepBooks(sh, int64(s.clockNow()))
		sh.mu.Unlock()
	}
	if n := s.permits.bytes.Load(); n >= s.permits.most {
		return fmt.Errorf("%w: memory: permits take %d bytes, and may take %d; ask for shorter times, or give the store more memory",
			headgate.ErrUnavailable, n, s.permits.most)
	}
	return nil
}

// Renew implements [store.Permits].
func (s *Store) Renew(ctx context.Context, key, holder string, epoch int64, ttl time.Duration) (l store.Lease, err error) {
	if err := cmp.Or(store.ValidateRenew(key, holder, epoch, ttl), ended(ctx)); err != nil {
		return l, err
	}
	err = s.withBook(key, func(b *store.Book, now int64) error {
		l, err = b.Renew(key, holder, epoch, ttl, now)
		return err
	})
	return l, err
}

// Release implements [store.Permits].
func (s *Store) Release(ctx context.Context, key, holder string, epoch int64) (released bool, err error) {
	if err := cmp.Or(store.ValidateRelease(key, holder, epoch), ended(ctx)); err != nil {
		return false, err
	}
	err = s.withBook(key, func(b *store.Book, now int64) error {
		released = b.Release(holder, epoch, now)
		return nil
	})
	return released, err
}

// Holders implements [store.Permits].
func (s *Store) Holders(ctx context.Context, key string) (all store.PermitHolders, err error) {
	if err := cmp.Or(store.ValidateHolders(key), ended(ctx)); err != nil {
		return all, err
	}
	err = s.withBook(key, func(b *store.Book, now int64) error {
		all = b.Holders(key, now)
		return nil
	})
	return all, err
}

// Revoke implements [store.Permits].
func (s *Store) Revoke(ctx context.Context, key, holder string) (revoked bool, err error) {
	if err := cmp.Or(store.ValidateRelease(key, holder, 0), ended(ctx)); err != nil {
		return false, err
	}
	err = s.withBook(key, func(b *store.Book, now int64) error {
		revoked = b.Revoke(holder, now)
		return nil
	})
	return revoked, err
}

// ended returns an error if the context has ended before the call.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: memory: %w before it began: nothing has changed", headgate.ErrUnavailable, err)
	}
	return nil
}
