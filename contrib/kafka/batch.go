package kafka

import (
	"context"
	"sync"
)

// batching controls which letters to one topic may share a batch. The client puts letters that are
// produced at the same time into one batch. Usually that is fine. A letter that must be alone in
// its batch is produced while no other letter to the topic is.
//
// If such a letter waits, all later letters wait behind it, so that it gets its turn.
// Whoever comes later waits behind a letter that waits to be alone, so that each has its turn.
type batching struct {
	turn chan struct{} // holds a value while a letter enters, or while one is alone

	mu     sync.Mutex
	shared int           // letters that are being produced and may share a batch
	none   chan struct{} // closed when shared becomes 0; nil if no letter waits for that
}

func newBatching() *batching { return &batching{turn: make(chan struct{}, 1)} }

// enter waits until a letter may be produced, and returns a function to call after it was produced.
// If the context ends first, enter returns the context's error.
func (b *batching) enter(ctx context.Context, alone bool) (leave func(), err error) {
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !alone {
		b.mu.Lock()
		b.shared++
		b.mu.Unlock()
		b.pass()
		return b.leave, nil
	}
	select {
	case <-b.empty():
		return b.pass, nil
	case <-ctx.Done():
		b.pass()
		return nil, ctx.Err()
	}
}

// empty returns a channel that is closed when no letter is being produced any more. Only the holder
// of the turn calls it.
func (b *batching) empty() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	none := make(chan struct{})
	if b.shared == 0 {
		close(none)
	} else {
		b.none = none
	}
	return none
}

func (b *batching) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shared--
	if b.shared == 0 && b.none != nil {
		close(b.none)
		b.none = nil
	}
}

func (b *batching) pass() { <-b.turn }
