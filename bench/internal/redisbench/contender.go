package redisbench

import (
	"context"

	"github.com/headgate/headgate/bench/internal/workload"
)

// Contender is one limiter under measurement.
type Contender struct {
	// Name and Note go into the tables; the note says what a decision is here.
	Name, Note string
	// Role says what the figures are compared with.
	Role Role
	// Open connects a limiter to the server at addr; it holds each class of keys
	// to its limit.
	Open func(ctx context.Context, addr string, q workload.Limits) (*Limiter, error)
}

// Role is a contender's part in the comparison.
type Role uint8

const (
	// Peer is another project's limiter.
	Peer Role = iota
	// Ours is Headgate's.
	Ours
	// Floor is the least that a right answer can cost.
	Floor
)

// Limiter is an open contender. Take is safe for concurrent use.
type Limiter struct {
	// Take asks for one unit.
	Take func(ctx context.Context, c workload.Class, key string) (allowed bool, err error)
	// Close ends the connections.
	Close func() error
}
