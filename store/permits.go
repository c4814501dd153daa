package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// The bounds of permits. What a store keeps of a key is read and written as a whole, so
// the number of leases and of those who wait is bounded: a limit by the thousand is
// better shared out among processes, or expressed as a rate.
const (
	// MaxPermits is the largest limit of a key, in units.
	MaxPermits = 1000
	// MaxPermitQueue is how many may wait for a key at most.
	MaxPermitQueue = 1000
	// MaxHolder is the longest name of a holder, in bytes.
	MaxHolder = 128
	// MinTTL and MaxTTL bound for how long a lease lasts without being renewed.
	MinTTL = 100 * time.Millisecond
	MaxTTL = time.Hour
)

// Permits keeps permits that several processes share: for each key a number of units,
// the limit, of which each lease holds some until it ends. A lease ends when it is
// released, or when its TTL has passed since it was acquired or renewed, on the clock of
// the store. Implementations are safe for concurrent use.
//
// Errors are an [*headgate.InvalidError] if the call is at fault, or wrap
// [headgate.ErrUnavailable] if the store did not answer; it is unknown then whether the
// call counted. Every method may be repeated after such an error: Acquire by the same
// holder returns the lease that the holder has, and the others change nothing twice.
type Permits interface {
	// Acquire takes units of a key for a holder if they are free and nobody waits who
	// comes first. Otherwise it refuses, or gives the holder a place in line if the
	// request has a Wait. To keep that place, and to get the lease when it is its turn,
	// the holder calls Acquire again within Wait. A call without Wait gives the place up
	// if it is refused.
	//
	// A holder that has a lease gets that lease, with the time that is left of it. If the
	// cost is another one, the error is [ErrOtherCost]; if the lease was revoked, it is
	// [ErrRevoked]. If the cost exceeds the limit it is a [*TooLargeError].
	Acquire(ctx context.Context, r PermitRequest) (PermitAnswer, error)

	// Renew has the lease with this epoch last for ttl from now. It never acquires: if
	// the lease has ended, the error wraps [ErrNotHeld], even if its units are still
	// free. It is [ErrRevoked] if the lease was revoked, which is an ErrNotHeld too.
	Renew(ctx context.Context, key, holder string, epoch int64, ttl time.Duration) (Lease, error)

	// Release ends the lease with this epoch, and reports whether there was one. With the
	// epoch 0 it ends whatever lease the holder has, and gives up its place in line: for
	// who has no answer to Acquire. What has ended already is no error.
	Release(ctx context.Context, key, holder string, epoch int64) (bool, error)

	// Holders lists who has leases of a key and who waits for them.
	Holders(ctx context.Context, key string) (PermitHolders, error)

	// Revoke forbids that the lease of a holder is renewed, and takes the holder out of
	// the line. It reports whether the holder had either. The units come back when the
	// holder releases them, or when the lease ends: until then the holder may be at work.
	Revoke(ctx context.Context, key, holder string) (bool, error)
}

// PermitRequest asks for a lease.
type PermitRequest struct {
	// Key is what the units are counted for: up to headgate.MaxKey bytes, of any kind.
	Key string
	// Holder names who asks, among all that ask for the key: 1 to MaxHolder bytes. Give
	// each lease a holder of its own, such as a name with a random number behind it.
	Holder string
	// Cost is how many units the lease holds, 1 to Limit. Zero means one.
	Cost int64
	// Limit is how many units of the key may be held at a time, 1 to MaxPermits. It may
	// change while leases are held. Callers that state different limits at the same time
	// are each held to their own.
	Limit int64
	// TTL is for how long the lease lasts without being renewed, MinTTL to MaxTTL.
	TTL time.Duration
	// Queue is how many holders may wait for the key, this one included, 0 to MaxPermitQueue.
	Queue int
	// Wait is for how long a place in line is kept until the holder asks again: 0 to take
	// none, or MinTTL to MaxTTL.
	Wait time.Duration
}

// Units is the cost, with zero taken for one.
func (r *PermitRequest) Units() int64 {
	if r.Cost == 0 {
		return 1
	}
	return r.Cost
}

// Validate returns an [*headgate.InvalidError] or a [*TooLargeError] if no store could
// take the request. Stores call it first.
func (r *PermitRequest) Validate() error {
	problems := nameProblems(r.Key, r.Holder)
	if r.Limit < 1 || r.Limit > MaxPermits {
		problems.Add("limit", "the limit is %d, must be 1 to %d", r.Limit, MaxPermits)
	}
	if r.Cost < 0 {
		problems.Add("cost", "the cost is %d, must be 1 to the limit of %d, or 0 for 1", r.Cost, r.Limit)
	}
	addTTL(&problems, r.TTL)
	if r.Queue < 0 || r.Queue > MaxPermitQueue {
		problems.Add("queue", "the queue is %d, must be 0 to %d", r.Queue, MaxPermitQueue)
	}
	if r.Wait != 0 && (r.Wait < MinTTL || r.Wait > MaxTTL) {
		problems.Add("wait", "the place in line is kept for %v, must be %v to %v, or 0 for none", r.Wait, MinTTL, MaxTTL)
	}
	if err := problems.Err("permit"); err != nil {
		return err
	}
	if r.Cost > r.Limit {
		return &TooLargeError{Cost: r.Cost, Limit: r.Limit}
	}
	return nil
}

func nameProblems(key, holder string) headgate.Problems {
	var problems headgate.Problems
	addKey(&problems, key)
	if n := len(holder); n < 1 || n > MaxHolder {
		problems.Add("holder", "the holder's name has %d bytes, must have 1 to %d", n, MaxHolder)
	}
	return problems
}

func addKey(problems *headgate.Problems, key string) {
	if len(key) > headgate.MaxKey {
		problems.Add("key", "the key has %d bytes, must have at most %d", len(key), headgate.MaxKey)
	}
}

func addTTL(problems *headgate.Problems, ttl time.Duration) {
	if ttl < MinTTL || ttl > MaxTTL {
		problems.Add("ttl", "the lease is to last for %v, must be %v to %v", ttl, MinTTL, MaxTTL)
	}
}

// ValidateRenew returns an [*headgate.InvalidError] if no store could take the arguments
// of Renew.
func ValidateRenew(key, holder string, epoch int64, ttl time.Duration) error {
	problems := nameProblems(key, holder)
	if epoch <= 0 || epoch > MaxEpoch {
		problems.Add("epoch", "the epoch is %d, must be that of the lease, 1 to %d", epoch, int64(MaxEpoch))
	}
	addTTL(&problems, ttl)
	return problems.Err("permit")
}

// ValidateRelease returns an [*headgate.InvalidError] if no store could take the
// arguments of Release, or of Revoke with the epoch 0.
func ValidateRelease(key, holder string, epoch int64) error {
	problems := nameProblems(key, holder)
	if epoch < 0 || epoch > MaxEpoch {
		problems.Add("epoch", "the epoch is %d, must be that of the lease, 1 to %d, or 0 for any", epoch, int64(MaxEpoch))
	}
	return problems.Err("permit")
}

// ValidateHolders returns an [*headgate.InvalidError] if no store could take the
// argument of Holders.
func ValidateHolders(key string) error {
	var problems headgate.Problems
	addKey(&problems, key)
	return problems.Err("permit")
}

// MaxEpoch bounds epochs: what a double holds exactly.
const MaxEpoch = 1<<53 - 1

// PermitAnswer is what Acquire has decided.
type PermitAnswer struct {
	// Lease is what was granted. It has no Epoch if nothing was.
	Lease Lease
	// Waiting reports that the holder has a place in line, and Ahead how many are before
	// it.
	Waiting bool
	Ahead   int
	// InUse is how many units of the key are held after the decision, and Line how many
	// holders wait.
	InUse int64
	Line  int
	// Limit is how many units there are, where another limit holds than that of the
	// request: a server's rule has its own. Zero means that of the request.
	Limit int64
	// Unleased says that the holder may go on without a lease: the rule of a server only
	// measures, or lets work begin while its store does not answer.
	Unleased bool
}

// Granted reports whether the holder has a lease.
func (a *PermitAnswer) Granted() bool { return a.Lease.Epoch != 0 }

// Lease is the right of a holder to some units until it ends.
type Lease struct {
	Key, Holder string
	// Fence is what a resource tells this lease from those before it by.
	Fence
	// Remaining is how long the lease lasted at the time of the answer, on the store's
	// clock. A holder counts from before it asked.
	Remaining time.Duration
	// TTL is what the lease was acquired or renewed with.
	TTL time.Duration
	// Revoked reports that the lease cannot be renewed.
	Revoked bool
}

// Cost is how many units the lease holds.
func (l *Lease) Cost() int64 { return int64(len(l.Slots)) }

// Fence tells a lease from all that held the same units before. A resource that keeps the
// highest epoch it has seen for each slot, and refuses what comes with a lower one, has
// at most one holder for each slot, whatever holders believe of their leases.
type Fence struct {
	// Slots are the numbers of the units that are held, from 0 to below the limit of the
	// time, in ascending order: one for each unit.
	Slots []int
	// Epoch is higher than that of every lease that held one of the slots before. It is
	// at least the store's clock in microseconds since 1970, so that it is higher too
	// after the store has lost what it knew.
	Epoch int64
}

// String writes the epoch and the slots: "1764000000000000 0,2".
func (f Fence) String() string {
	b := strconv.AppendInt(nil, f.Epoch, 10)
	for i, slot := range f.Slots {
		sep := byte(',')
		if i == 0 {
			sep = ' '
		}
		b = strconv.AppendInt(append(b, sep), int64(slot), 10)
	}
	return string(b)
}

// PermitHolders is who has leases of a key, and who waits, in the order of their places.
type PermitHolders struct {
	Leases  []Lease
	Waiting []Ticket
}

// InUse is how many units are held.
func (h *PermitHolders) InUse() int64 {
	n := int64(0)
	for i := range h.Leases {
		n += h.Leases[i].Cost()
	}
	return n
}

// Ticket is a place in line.
type Ticket struct {
	Holder string
	Cost   int64
	// Remaining is how long the place is still kept unless the holder asks again.
	Remaining time.Duration
}

var (
	// ErrNotHeld means that the holder has no lease with that epoch: it has ended, was
	// released, or the store has lost it.
	ErrNotHeld = errors.New("headgate: permit not held")
	// ErrRevoked means that the lease was revoked. It is an ErrNotHeld.
	ErrRevoked error = revoked{}
	// ErrOtherCost means that the holder has a lease, or a place in line, at another cost.
	ErrOtherCost = errors.New("headgate: the holder has a permit or a place in line at another cost")
	// ErrTooLarge is what a [*TooLargeError] is.
	ErrTooLarge = errors.New("headgate: the cost exceeds the limit")
)

type revoked struct{}

func (revoked) Error() string        { return ErrNotHeld.Error() + ": it was revoked" }
func (revoked) Is(target error) bool { return target == ErrNotHeld }

// TooLargeError says that a lease can never be granted.
type TooLargeError struct {
	// Cost is what was asked for, and Limit all there is.
	Cost, Limit int64
}

// Error has both numbers.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("headgate: the cost of %d exceeds the limit of %d permits", e.Cost, e.Limit)
}

// Is makes errors.Is(err, ErrTooLarge) true.
func (e *TooLargeError) Is(target error) bool { return target == ErrTooLarge }

// PermitsOf returns the permits of a store. The error is a [*headgate.InvalidError] that
// names the store if it keeps none: stores without a clock of their own cannot tell when
// a lease ends, and layers around a store have none.
func PermitsOf(s headgate.Store) (Permits, error) {
	if p, ok := s.(Permits); ok {
		return p, nil
	}
	return nil, keepsNo(s, "permits")
}

// keepsNo is the error for a store that does not keep what is named.
func keepsNo(s headgate.Store, what string) error {
	name := strings.TrimPrefix(fmt.Sprintf("%T", s), "*")
	return headgate.Invalid("store", "",
		"%s keeps no %s that processes share; the stores in memory, in Redis or Valkey, and in PostgreSQL do", name, what)
}
