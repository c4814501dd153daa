package cas

import "context"

// Backend is a database that can read and compare and set. Implementations are safe
// for concurrent use.
type Backend interface {
	// Begin reads the values of the keys, all different, for one attempt to change
	// them. A backend that locks may wait for others here, and must then take its
	// locks in an order of its own, so that two attempts cannot wait for each other.
	// Errors are the database's own; they become [headgate.ErrUnavailable]. Begin may
	// return after the context's deadline: the callers do not wait for it, and those that
	// have given up by then are not decided.
	Begin(ctx context.Context, keys []string) (Attempt, error)
	// MaxKeys is how many keys an attempt can have, 1 or more. If it is 1, the store
	// refuses requests with several checks.
	MaxKeys() int
	// MaxValue is how many bytes a value can have, or 0 if there is no bound. State that
	// does not fit is kept in a coarser form; none of it is forgotten.
	MaxValue() int
}

// Attempt is what Begin has read. Exactly one of its methods Commit and Cancel is
// called, once.
type Attempt interface {
	// Now is the database's clock, in microseconds since the Unix epoch. It was read
	// after the values, or together with them.
	Now() int64
	// Value is the value of the key at that place, or nil if there is none. It may
	// be kept, and must not be changed.
	Value(i int) []byte
	// Commit writes all of the changes or none, and reports whether it did: false
	// means that somebody has changed one of the keys since Begin, and that nothing was
	// written. After an error it is not known whether they were written, unless the error
	// says that nothing was charged. There may be no changes.
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
	// Expires is the time, by the clock of Now, from which the value may be forgotten.
	Expires int64
	// Due is when [LedgerBackend.Due] shall find the key, or 0 for never. A value with a
	// Due is not forgotten. Only a ledger uses it.
	Due int64
}

// LedgerBackend is a [Backend] that can keep a [headgate.Ledger].
type LedgerBackend interface {
	Backend
	// Due returns at most limit of the keys that begin with prefix and whose Due is not
	// after now, the oldest first.
	Due(ctx context.Context, prefix string, now int64, limit int) ([]string, error)
	// Clock reads the database's clock.
	Clock(ctx context.Context) (int64, error)
	// Forget removes some of the values whose keys begin with prefix, which have expired
	// by now and have no Due. If now is 0, the database decides by its own clock, which it
	// reads for each value: the clock may be set back meanwhile. Forget is called about once
	// a second and must return soon.
	Forget(ctx context.Context, prefix string, now int64) error
}
