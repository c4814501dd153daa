package redis

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis/internal/guard"
)

//go:embed lua/permits.lua
var permitsLua string

var _ store.Permits = (*Store)(nil)

// The operations and statuses of permits.lua.
const (
	permitAcquire = "a"
	permitRenew   = "n"
	permitRelease = "r"
	permitRevoke  = "v"
	permitHolders = "h"

	permitRefused   = 0
	permitGranted   = 1
	permitWaiting   = 2
	permitRevoked   = 3
	permitOtherCost = 4
)

// Acquire implements [store.Permits]. With Sentinels or on a Cluster, a failover can lose leases
// that were granted shortly before. Their holders notice when they renew.
func (s *Store) Acquire(ctx context.Context, r store.PermitRequest) (store.PermitAnswer, error) {
	if err := r.Validate(); err != nil {
		return store.PermitAnswer{}, err
	}
	got, err := s.permit(ctx, "acquire", permitAcquire, r.Key, r.Holder,
		r.Units(), r.Limit, r.TTL.Microseconds(), int64(r.Queue), r.Wait.Microseconds())
	if err != nil {
		return store.PermitAnswer{}, err
	}
	status := got.int()
	a := store.PermitAnswer{InUse: got.int(), Line: int(got.int()), Ahead: int(got.int())}
	switch status {
	case permitGranted:
		a.Lease = got.lease(r.Key, r.Holder)
	case permitWaiting:
		a.Waiting = true
	case permitRevoked:
		return store.PermitAnswer{}, store.ErrRevoked
	case permitOtherCost:
		return store.PermitAnswer{}, store.ErrOtherCost
	}
	return a, got.end("acquire")
}

// Renew implements [store.Permits].
func (s *Store) Renew(ctx context.Context, key, holder string, epoch int64, ttl time.Duration) (store.Lease, error) {
	if err := store.ValidateRenew(key, holder, epoch, ttl); err != nil {
		return store.Lease{}, err
	}
	got, err := s.permit(ctx, "renew", permitRenew, key, holder, epoch, ttl.Microseconds())
	if err != nil {
		return store.Lease{}, err
	}
	switch got.int() {
	case permitGranted:
		return got.lease(key, holder), got.end("renew")
	case permitRevoked:
		return store.Lease{}, store.ErrRevoked
	}
	return store.Lease{}, store.ErrNotHeld
}

// Release implements [store.Permits].
func (s *Store) Release(ctx context.Context, key, holder string, epoch int64) (bool, error) {
	if err := store.ValidateRelease(key, holder, epoch); err != nil {
		return false, err
	}
	return s.permitFound(s.permit(ctx, "release", permitRelease, key, holder, epoch))
}

// Revoke implements [store.Permits].
func (s *Store) Revoke(ctx context.Context, key, holder string) (bool, error) {
	if err := store.ValidateRelease(key, holder, 0); err != nil {
		return false, err
	}
	return s.permitFound(s.permit(ctx, "revoke", permitRevoke, key, holder))
}

func (s *Store) permitFound(got *permitReply, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	return got.int() == 1, got.end("permit")
}

// Holders implements [store.Permits].
func (s *Store) Holders(ctx context.Context, key string) (all store.PermitHolders, err error) {
	if err := store.ValidateHolders(key); err != nil {
		return all, err
	}
	got, err := s.permit(ctx, "holders", permitHolders, key, "")
	if err != nil {
		return all, err
	}
	leases, line := got.int(), got.int()
	for range leases {
		l := store.Lease{Key: key, Holder: got.string()}
		l.Epoch, l.Remaining, l.TTL, l.Revoked = got.int(), got.duration(), got.duration(), got.int() == 1
		l.Slots = got.slots(int(got.int()))
		all.Leases = append(all.Leases, l)
	}
	// A hash has no order. Epochs are in the order of the grants.
	slices.SortFunc(all.Leases, func(a, b store.Lease) int { return cmp.Compare(a.Epoch, b.Epoch) })
	for range line {
		all.Waiting = append(all.Waiting, store.Ticket{Holder: got.string(), Cost: got.int(), Remaining: got.duration()})
	}
	return all, got.end("holders")
}

// permit makes a call of permits.lua. It does not wait behind decisions about rates.
func (s *Store) permit(ctx context.Context, doing, op, key, holder string, numbers ...int64) (*permitReply, error) {
	args := make([]string, 0, 3+len(numbers))
	args = append(args, op, s.testTime(), holder)
	for _, n := range numbers {
		args = append(args, string(appendInt(nil, n)))
	}
	got, err := s.beside(ctx, doing, s.scripts.permits, " permit ", key, args)
	if err != nil {
		return nil, err
	}
	left, err := got.ToArray()
	if err != nil {
		return nil, unavailable(doing, err)
	}
	return &permitReply{left: left}, nil
}

// testTime is the clock that tests have set, as scripts read it; empty if there is none.
func (s *Store) testTime() string {
	if s.clock == nil {
		return ""
	}
	return string(appendInt(nil, s.clock()))
}

// beside runs a script for one key that is no counter. It does not wait behind decisions. kind
// begins the key's name: with a space, as no rule's name does.
func (s *Store) beside(ctx context.Context, doing string, script *rueidis.Lua, kind, key string, args []string) (rueidis.RedisMessage, error) {
	ctx, cancel, err := s.deadlines.Limit(ctx)
	if err != nil {
		return rueidis.RedisMessage{}, unavailable(doing, err)
	}
	defer cancel()
	name := string(appendEscaped(append([]byte(s.prefix), kind...), key))
	began := time.Now()
	of := func() *guard.Server { return s.guard(name) }
	got, err := guard.Patient(ctx, of, true, func() (rueidis.RedisMessage, error) {
		return guard.Call(ctx, of(), func() (rueidis.RedisMessage, error) {
			return script.Exec(ctx, s.client, []string{name}, args).ToMessage()
		})
	})
	if s.observing.tell != nil {
		s.observe(slotOf(name), doing, began, err)
	}
	if err != nil {
		return got, unavailable(doing, err)
	}
	return got, nil
}

// permitReply reads the numbers and texts of an answer. After an error it returns zeros.
type permitReply struct {
	left []rueidis.RedisMessage
	err  error
}

var errShortAnswer = errors.New("the script's answer ends before its time")

func (r *permitReply) next() (m rueidis.RedisMessage, ok bool) {
	if len(r.left) == 0 {
		r.err = errShortAnswer
		return m, false
	}
	m, r.left = r.left[0], r.left[1:]
	return m, true
}

func (r *permitReply) int() int64 {
	m, ok := r.next()
	if !ok {
		return 0
	}
	n, err := m.AsInt64()
	if err != nil {
		r.left, r.err = nil, err
	}
	return n
}

func (r *permitReply) duration() time.Duration { return time.Duration(r.int()) * time.Microsecond }

func (r *permitReply) string() string {
	m, ok := r.next()
	if !ok {
		return ""
	}
	text, err := m.ToString()
	if err != nil {
		r.left, r.err = nil, err
	}
	return text
}

func (r *permitReply) slots(n int) []int {
	slots := make([]int, min(max(n, 0), len(r.left)))
	for i := range slots {
		slots[i] = int(r.int())
	}
	return slots
}

// lease reads the lease at the end of an answer.
func (r *permitReply) lease(key, holder string) store.Lease {
	l := store.Lease{Key: key, Holder: holder}
	l.Epoch, l.Remaining, l.TTL = r.int(), r.duration(), r.duration()
	l.Slots = r.slots(len(r.left))
	return l
}

// end returns the error of an answer that has been read, if there is one.
func (r *permitReply) end(doing string) error {
	if r.err == nil && len(r.left) > 0 {
		r.err = fmt.Errorf("the script's answer has %d elements too many", len(r.left))
	}
	if r.err != nil {
		return unavailable(doing, r.err)
	}
	return nil
}
