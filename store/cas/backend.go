package cas

import "context"

// Backend is a database that can read and compare and set. Implementations are safe
// for concurrent use.
type Backend interface {
	// Begin reads the values of the keys, all different, for one attempt to change
	// them. A backend that locks may wait for others here, and must then take its
	// locks in an order of its own, so that two attempts cannot wait for each other.
	// Errors are the database's own; they become [headgate.ErrUnavailable]. It may
	// return after the context's deadline: the callers do not wait for it, and who has
	// given up by then is not decided.
	Begin(ctx context.Context, keys []string) (Attempt, error)
	// MaxKeys is how many keys an attempt can have, 1 or more. Where it is 1, the
	// store refuses requests with several checks.
	MaxKeys() int
	// MaxValue is how many bytes a value can have, or 0 if as many as it needs. What
	// does not fit is kept in a coarser form, never forgotten.
	MaxValue() int
}

// Attempt is what Begin has read. Exactly one of its methods Commit and Cancel is
// called, once.
type Attempt interface {
	// Now is the database's clock, in microseconds since the Unix epoch, not before
	// the values were read for certain.
	Now() int64
	// Value is the value of the key at that place, or nil if there is none. It may
	// be kept, and must not be changed.
	Value(i int) []byte
	// Commit writes the changes, all or none, and reports whether it did: false
	// means that somebody has changed one of the keys since Begin, and nothing was
	// written. After an error it is unknown, unless that says that nothing was charged.
	// There may be no changes.
	Commit(ctx context.Context, changes []Change) (bool, error)
	// Cancel ends the attempt without writing anything.
	Cancel()
}

// Change is a new value for a key of an attempt.
type Change struct {
	// Key is the place of the key among those of the attempt.
	Key int
	// Value is to be written, or nil if the key is to be removed.
	Value []byte
	// Expires is from when on the value may be forgotten, by the clock of Now.
	Expires int64
	// Due is when the key is to be found by [LedgerBackend.Due], or 0 for never. A
	// value that is due is not forgotten before. Only a ledger uses it.
	Due int64
}

// LedgerBackend is a [Backend] that can keep a [headgate.Ledger].
type LedgerBackend interface {
	Backend
	// Due returns up to limit keys that begin with prefix and whose Due is at now or
	// before, the oldest first.
	Due(ctx context.Context, prefix string, now int64, limit int) ([]string, error)
	// Clock reads the database's clock.
	Clock(ctx context.Context) (int64, error)
	// Forget removes some of the values whose keys begin with prefix, that have
	// expired at now and are never due. It is called about once a second, and returns
	// soon.
	Forget(ctx context.Context, prefix string, now int64) error
}
