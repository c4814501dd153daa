package redis

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/sleep"
	"github.com/headgate/headgate/store/redis/internal/guard"
)

// Reservations whose units are given back if nobody settles them are in a sorted set, ordered by
// their expiry in microseconds. Each process that has made such a reservation looks at the set
// about once a second. The script that settles makes sure that each reservation is given back only
// once.

const (
	// sweepEvery is the average time between two sweeps. A sweep handles up to sweepBatches batches
	// of sweepBatch reservations.
	sweepEvery   = time.Second
	sweepBatch   = 64
	sweepBatches = 64
	// sweepWithin bounds each step of a sweep. If the timeout of decisions is longer, that applies
	// instead.
	sweepWithin = 2 * time.Second
)

// sweep looks at the set until the store is closed.
func (s *Store) sweep() {
	// A random pause keeps processes from sweeping at the same time.
	for sleep.For(s.tasks.ctx, sweepEvery/2+rand.N(sweepEvery)) {
		// If the store is away, the next sweep handles what is due.
		_ = s.Sweep(s.tasks.ctx)
	}
}

func (s *Store) dueKey() string { return s.prefix + " due" }

// promise adds a reservation to the sorted set, if it is not there yet. Call it before the
// reservation is made: an entry without a reservation is dropped later, but a reservation without
// an entry would not be given back.
func (s *Store) promise(ctx context.Context, id string, term time.Duration) error {
	if s.clock == nil {
		s.sweeping.Do(func() { s.tasks.start(s.sweep) })
	}
	due := float64(int64(s.likely(time.Now())) + term.Microseconds())
	return s.do(ctx, "reserve", s.client.B().Zadd().Key(s.dueKey()).Nx().ScoreMember().ScoreMember(due, id).Build())
}

// Sweep gives back the units of reservations that have expired. The store calls it by itself; only
// tests need to call it.
func (s *Store) Sweep(ctx context.Context) error {
	for range sweepBatches {
		ids, err := s.due(ctx)
		if err != nil {
			return err
		}
		var failure error
		for _, id := range ids {
			// A reservation that cannot be read must not keep later ones from being handled.
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
	now := strconv.FormatInt(int64(s.likely(time.Now())), 10)
	ids, err := guard.Do(ctx, s.guard(s.dueKey()), func() ([]string, error) {
		return s.client.Do(ctx, s.client.B().Zrangebyscore().Key(s.dueKey()).Min("-inf").Max(now).Limit(0, sweepBatch).Build()).AsStrSlice()
	})
	if err != nil {
		return nil, unavailable("sweep", err)
	}
	return ids, nil
}

// abandon settles an expired reservation: each check gives its units back or keeps them charged, as
// its GiveBack says.
func (s *Store) abandon(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, max(sweepWithin, s.deadlines.Timeout))
	defer cancel()
	r, err := s.read(ctx, id)
	switch {
	case err != nil && !errors.Is(err, headgate.ErrNoReservation):
		return err
	case err == nil && !r.expired && r.reservation.ID != "":
		// By the server's clock the reservation has not expired yet; ours is ahead.
		due := float64(r.reservation.Expires)
		return s.do(ctx, "sweep", s.client.B().Zadd().Key(s.dueKey()).ScoreMember().ScoreMember(due, id).Build())
	case err == nil && r.open && r.reservation.ID != "":
		units := make([]int64, len(r.reservation.Checks))
		for i := range r.reservation.Checks {
			if c := &r.reservation.Checks[i]; !c.GiveBack {
				units[i] = c.Units()
			}
		}
		if _, err := s.settleAll(ctx, &r.reservation, units, nil, modeExpired); err != nil && !errors.Is(err, headgate.ErrNoReservation) {
			return err
		}
	}
	return s.do(ctx, "sweep", s.client.B().Zrem().Key(s.dueKey()).Member(id).Build())
}
