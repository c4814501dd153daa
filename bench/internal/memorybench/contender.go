package memorybench

import "github.com/headgate/headgate/bench/internal/workload"

// Contender is one limiter under measurement.
type Contender struct {
	// Name and Note go into the tables; the note says what a decision is here.
	Name, Note string
	// Role says what the figures are compared with.
	Role Role
	// Open returns a fresh, empty limiter that holds each class of keys to its
	// limit.
	Open func(q workload.Limits) (*Limiter, error)
}

// Role is a contender's part in the comparison.
type Role uint8

const (
	// Peer is another project's limiter.
	Peer Role = iota
	// Ours is Headgate's.
	Ours
	// Floor limits nothing: what remains is the harness.
	Floor
)

// Limiter is an open contender. Take is safe for concurrent use.
type Limiter struct {
	// Add announces a key before it is asked about for the first time; nil where
	// a contender needs no such thing.
	Add func(c workload.Class, key string) error
	// Take asks for one unit.
	Take func(c workload.Class, key string) (allowed bool, err error)
	// Close ends what the limiter does in the background; nil if there is
	// nothing.
	Close func() error
}

func (l *Limiter) close() error {
	if l.Close == nil {
		return nil
	}
	return l.Close()
}
