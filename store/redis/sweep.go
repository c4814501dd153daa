package redis

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis/internal/guard"
)

// Reservations whose units are given back when nobody settles them stand in a
// sorted set by when they expire, in microseconds. Whoever has made such a reservation looks at it
// now and then; a script sees to it that each is given back once.

// sweeping is the goroutine that looks, if there is one.
type sweeping struct {
	mu   sync.Mutex // guards both
	stop context.CancelFunc
	done chan struct{}
	over bool
}

const (
	// sweepEvery is how often it looks, and sweepBatch how many it deals with then
	// before it looks again at once, so many times.
	sweepEvery   = time.Second
	sweepBatch   = 64
	sweepBatches = 64
	// sweepWithin bounds each step, unless a decision may take longer. Nobody waits
	// for it.
	sweepWithin = 2 * time.Second
)

func (s *sweeping) start(sweep func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil || s.over {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop, s.done = stop, make(chan struct{})
	go func() {
		defer close(s.done)
		for {
			// Not all processes at once.
			pause := time.NewTimer(sweepEvery/2 + rand.N(sweepEvery))
			select {
			case <-ctx.Done():
				pause.Stop()
				return
			case <-pause.C:
			}
			// The store may be away; what is due then is due later.
			_ = sweep(ctx)
		}
	}()
}

func (s *sweeping) end() {
	s.mu.Lock()
	stop, done := s.stop, s.done
	s.over = true
	s.mu.Unlock()
	if stop != nil {
		stop()
		<-done
	}
}

func (s *Store) dueKey() string { return s.prefix + " due" }

// promise notes, the first time, that a reservation is to be looked after. It comes
// first: an entry without a reservation is dropped, a reservation without an entry would
// not be given back.
func (s *Store) promise(ctx context.Context, id string, term time.Duration) error {
	if s.clock == nil {
		s.sweeping.start(s.Sweep)
	}
	due := float64(s.likely() + term.Microseconds())
	return s.do(ctx, "reserve", s.client.B().Zadd().Key(s.dueKey()).Nx().ScoreMember().ScoreMember(due, id).Build())
}

// Sweep gives back what has expired. It happens by itself; tests ask for it.
func (s *Store) Sweep(ctx context.Context) error {
	for range sweepBatches {
		ids, err := s.due(ctx)
		if err != nil {
			return err
		}
		var failure error
		for _, id := range ids {
			// One that cannot be read must not hold up those behind it.
			if err := s.abandon(ctx, id); err != nil && failure == nil {
				failure = err
			}
		}
		if failure != nil {
			return failure
		}
		if len(ids) < sweepBatch {
			break
		}
	}
	return nil
}

func (s *Store) due(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, max(sweepWithin, s.deadlines.Timeout))
	defer cancel()
	now := strconv.FormatInt(s.likely(), 10)
	ids, err := guard.Do(ctx, s.guard(s.dueKey()), func() ([]string, error) {
		return s.client.Do(ctx, s.client.B().Zrangebyscore().Key(s.dueKey()).Min("-inf").Max(now).Limit(0, sweepBatch).Build()).AsStrSlice()
	})
	if err != nil {
		return nil, unavailable("sweep", err)
	}
	return ids, nil
}

// abandon settles a reservation that has expired by the choice of its checks.
func (s *Store) abandon(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, max(sweepWithin, s.deadlines.Timeout))
	defer cancel()
	r, err := s.read(ctx, id)
	switch {
	case err != nil && !errors.Is(err, headgate.ErrNoReservation):
		return err
	case err == nil && !r.expired && r.reservation.ID != "":
		// Our clock is ahead of the server's: not yet.
		due := float64(r.reservation.Expires)
		return s.do(ctx, "sweep", s.client.B().Zadd().Key(s.dueKey()).ScoreMember().ScoreMember(due, id).Build())
	case err == nil && r.open && r.reservation.ID != "":
		units := make([]int64, len(r.reservation.Checks))
		for i := range r.reservation.Checks {
			if c := &r.reservation.Checks[i]; !c.GiveBack {
				units[i] = c.Units()
			}
		}
		settle := s.settle
		if s.clustered != nil {
			settle = s.settleCluster
		}
		if _, err := settle(ctx, &r.reservation, units, nil, settleExpired); err != nil && !errors.Is(err, headgate.ErrNoReservation) {
			return err
		}
	}
	return s.do(ctx, "sweep", s.client.B().Zrem().Key(s.dueKey()).Member(id).Build())
}
