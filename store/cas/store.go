package cas

import (
	"context"
	"fmt"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Store keeps counters in a [Backend]. It is safe for concurrent use. Make one with
// [New].
type Store struct {
	backend  Backend
	settings settings
	turns    turns
}

// New returns a store that keeps its counters in the backend, or an
// [*headgate.InvalidError].
func New(backend Backend, options ...Option) (*Store, error) {
	set, err := newSettings(options)
	if err != nil {
		return nil, err
	}
	s := &Store{backend: backend, settings: set}
	s.turns.init(s)
	return s, nil
}

// Take implements [headgate.Store]. It also returns an [*headgate.InvalidError] if the
// request has more checks than an attempt of the backend can have keys. The error says so
// if nothing was charged for certain: the call ended before it got a turn or before it was
// decided, or the backend has undone what it had written.
func (s *Store) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := s.validate(op, checks); err != nil {
		return dst, err
	}
	r := s.request(checks)
	var decisions []headgate.Decision
	err := s.turns.do(ctx, r.names, func(b *batch) error {
		decisions = decisions[:0]
		if op == headgate.OpReset {
			b.reset(r)
			return nil
		}
		if err := b.open(r); err != nil {
			return err
		}
		decisions = b.take(op, r, decisions)
		return nil
	})
	if err != nil {
		return dst, err
	}
	return append(dst, decisions...), nil
}

func (s *Store) validate(op headgate.Op, checks []headgate.Check) error {
	if err := store.Validate(op, checks); err != nil {
		return err
	}
	if most := s.backend.MaxKeys(); len(checks) > most {
		return headgate.Invalid("request", "checks",
			"it has %d checks, and this store takes at most %d at once: it cannot charge more keys all or nothing", len(checks), most)
	}
	return nil
}

// request copies the checks: a caller may give up and use its slice for something else while
// they are being decided.
func (s *Store) request(checks []headgate.Check) *request {
	r := &request{checks: slices.Clone(checks), names: make([]string, len(checks))}
	for i := range checks {
		r.names[i] = s.settings.prefix + checks[i].Rule.Name() + " " + checks[i].Key
	}
	return r
}

// Prefix returns what the names of all values of the store begin with.
func (s *Store) Prefix() string { return s.settings.prefix }

// Close waits for the attempts that are under way, and refuses later calls. The backend is not
// closed.
func (s *Store) Close() { s.turns.close() }

// unavailable wraps an error of the backend.
func unavailable(err error) error { return fmt.Errorf("%w: %w", headgate.ErrUnavailable, err) }
