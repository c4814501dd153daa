package app

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/sleep"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/layered/denycache"
	"github.com/headgate/headgate/store/layered/fallback"
)

const (
	// openWithin bounds each attempt to open a store, the one before the service listens too.
	openWithin = 5 * time.Second
	// The pauses between attempts double, from the first to the last.
	firstLate, lastLate = 100 * time.Millisecond, time.Second
)

// counter is what every store across a network can do, and sharer what those can do that have a
// clock.
type (
	counter interface {
		closer
		fallback.Members
	}
	sharer interface {
		headgate.Ledger
		store.Permits
		store.Documents
		denycache.Bus
		fallback.Members
		Close()
	}
)

// openLate opens the store. If its server is away, it returns one that opens itself as soon as the
// server is there, and fails all calls until then with an error that wraps
// [headgate.ErrUnavailable]. A server that answers and does not take the settings is an error at
// once: waiting would not help.
func (b *backend) openLate(ctx context.Context, url string, o backendOptions, logger *slog.Logger) (closer, error) {
	open := func(ctx context.Context) (closer, error) {
		ctx, cancel := context.WithTimeout(ctx, openWithin)
		defer cancel()
		return b.open(ctx, url, o)
	}
	s, err := open(ctx)
	if err == nil || ctx.Err() != nil || !errors.Is(err, headgate.ErrUnavailable) || errors.Is(err, store.ErrRefused) {
		return s, err
	}
	waiting, cancel := context.WithCancel(context.Background())
	l := &late{cancel: cancel, warned: warned{logger: logger.With(slog.String("store", b.describe(url)))}}
	l.failed(err)
	l.opening.Go(func() { l.open(waiting, open) })
	if b.shares {
		return &lateSharer{l}, nil
	}
	return l, nil
}

// late is a store whose server was away when the service began.
type late struct {
	warned
	cancel  context.CancelFunc
	opening sync.WaitGroup
	opened  atomic.Pointer[counter]
	why     atomic.Pointer[error] // of the last attempt
}

// open tries until the store is open or the context ends.
func (l *late) open(ctx context.Context, open func(context.Context) (closer, error)) {
	began := time.Now()
	for pause := firstLate; sleep.For(ctx, sleep.Jittered(pause)); pause = min(2*pause, lastLate) {
		s, err := open(ctx)
		if err == nil {
			c := s.(counter) //nolint:forcetypeassert // All kinds are.
			l.opened.Store(&c)
			l.logger.InfoContext(ctx, "the store is open", slog.Duration("after", time.Since(began).Round(time.Millisecond)))
			return
		}
		l.failed(err)
	}
}

// failed notes why an attempt failed, and tells the log now and then.
func (l *late) failed(err error) {
	l.why.Store(&err)
	if l.due() {
		l.logger.Error("the store cannot be opened yet; the service goes on trying, and is not ready", slog.Any("error", err))
	}
}

// store returns the store, or an error as long as it is not open.
func (l *late) store() (counter, error) {
	if s := l.opened.Load(); s != nil {
		return *s, nil
	}
	return nil, *l.why.Load()
}

// away reports whether the store is not open yet.
func (l *late) away() bool { return l.opened.Load() == nil }

// Close ends the attempts, and closes the store if it is open.
func (l *late) Close() {
	l.cancel()
	l.opening.Wait()
	if s, err := l.store(); err == nil {
		s.Close()
	}
}

// Take implements [headgate.Store].
func (l *late) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	s, err := l.store()
	if err != nil {
		return dst, err
	}
	return s.Take(ctx, op, checks, dst)
}

// Members implements [fallback.Members].
func (l *late) Members(ctx context.Context, node string, ttl time.Duration) (nodes int64, age time.Duration, err error) {
	s, err := l.store()
	if err != nil {
		return 0, 0, err
	}
	return s.Members(ctx, node, ttl)
}

// lateSharer is a late store of a kind that can do all that a sharer can.
type lateSharer struct{ *late }

var _ sharer = (*lateSharer)(nil)

// of asks the store, or returns the zero answer and an error as long as it is not open.
func of[T any](l *lateSharer, ask func(sharer) (T, error)) (answer T, err error) {
	s, err := l.late.store()
	if err != nil {
		return answer, err
	}
	return ask(s.(sharer)) //nolint:forcetypeassert // Backends say which kinds are.
}

// TakeOnce implements [headgate.Ledger].
func (l *lateSharer) TakeOnce(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	return of(l, func(s sharer) ([]headgate.Decision, error) { return s.TakeOnce(ctx, terms, checks, dst) })
}

// Reserve implements [headgate.Ledger].
func (l *lateSharer) Reserve(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (r headgate.Reservation, _ []headgate.Decision, err error) {
	dst, err = of(l, func(s sharer) (made []headgate.Decision, err error) {
		r, made, err = s.Reserve(ctx, terms, checks, dst)
		return made, err
	})
	return r, dst, err
}

// Recall implements [headgate.Ledger].
func (l *lateSharer) Recall(ctx context.Context, id string) (headgate.Reservation, error) {
	return of(l, func(s sharer) (headgate.Reservation, error) { return s.Recall(ctx, id) })
}

// Settle implements [headgate.Ledger].
func (l *lateSharer) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	return of(l, func(s sharer) ([]headgate.Decision, error) { return s.Settle(ctx, r, units, dst) })
}

// Acquire implements [store.Permits].
func (l *lateSharer) Acquire(ctx context.Context, r store.PermitRequest) (store.PermitAnswer, error) {
	return of(l, func(s sharer) (store.PermitAnswer, error) { return s.Acquire(ctx, r) })
}

// Renew implements [store.Permits].
func (l *lateSharer) Renew(ctx context.Context, key, holder string, epoch int64, ttl time.Duration) (store.Lease, error) {
	return of(l, func(s sharer) (store.Lease, error) { return s.Renew(ctx, key, holder, epoch, ttl) })
}

// Release implements [store.Permits].
func (l *lateSharer) Release(ctx context.Context, key, holder string, epoch int64) (bool, error) {
	return of(l, func(s sharer) (bool, error) { return s.Release(ctx, key, holder, epoch) })
}

// Holders implements [store.Permits].
func (l *lateSharer) Holders(ctx context.Context, key string) (store.PermitHolders, error) {
	return of(l, func(s sharer) (store.PermitHolders, error) { return s.Holders(ctx, key) })
}

// Revoke implements [store.Permits].
func (l *lateSharer) Revoke(ctx context.Context, key, holder string) (bool, error) {
	return of(l, func(s sharer) (bool, error) { return s.Revoke(ctx, key, holder) })
}

// ReadDocument implements [store.Documents].
func (l *lateSharer) ReadDocument(ctx context.Context, key string) (store.Document, error) {
	return of(l, func(s sharer) (store.Document, error) { return s.ReadDocument(ctx, key) })
}

// WriteDocument implements [store.Documents].
func (l *lateSharer) WriteDocument(ctx context.Context, read store.Document, value []byte, ttl time.Duration) (bool, error) {
	return of(l, func(s sharer) (bool, error) { return s.WriteDocument(ctx, read, value, ttl) })
}

// Publish implements [denycache.Bus].
func (l *lateSharer) Publish(ctx context.Context, message []byte) error {
	_, err := of(l, func(s sharer) (struct{}, error) { return struct{}{}, s.Publish(ctx, message) })
	return err
}

// Subscribe implements [denycache.Bus].
func (l *lateSharer) Subscribe(ctx context.Context, ready func(), receive func(message []byte)) error {
	_, err := of(l, func(s sharer) (struct{}, error) { return struct{}{}, s.Subscribe(ctx, ready, receive) })
	return err
}
