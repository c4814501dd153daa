package layertest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Wire is a bus of one process: each message arrives at all who listen after delay.
type Wire struct {
	delay time.Duration

	mu        sync.Mutex // guards what follows
	listeners map[int]*listener
	next      int
	sent      [][]byte
	failing   error         // of all that is published
	blocked   chan struct{} // publishing waits until it is closed, or the context ends
}

type listener struct {
	messages chan []byte
	lost     chan struct{}
}

// NewWire returns a bus whose messages take so long.
func NewWire(delay time.Duration) *Wire { return &Wire{delay: delay, listeners: map[int]*listener{}} }

// Publish sends a message, unless the bus hangs or fails.
func (w *Wire) Publish(ctx context.Context, message []byte) error {
	w.mu.Lock()
	blocked, failing := w.blocked, w.failing
	w.mu.Unlock()
	if blocked != nil {
		select {
		case <-blocked:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if failing != nil {
		return failing
	}
	w.Say(message)
	return nil
}

// Say has everybody who listens hear a message.
func (w *Wire) Say(message []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = append(w.sent, bytes.Clone(message))
	for _, l := range w.listeners {
		time.AfterFunc(w.delay, func() { l.messages <- bytes.Clone(message) })
	}
}

// Subscribe hears messages until the context ends or the bus is cut.
func (w *Wire) Subscribe(ctx context.Context, ready func(), receive func([]byte)) error {
	l := &listener{make(chan []byte, 10_000), make(chan struct{})}
	w.mu.Lock()
	id := w.next
	w.next++
	w.listeners[id] = l
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.listeners, id)
		w.mu.Unlock()
	}()
	ready()
	for {
		select {
		case m := <-l.messages:
			receive(m)
		case <-l.lost:
			return errors.New("lost")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Cut ends all connections.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, l := range w.listeners {
		close(l.lost)
		delete(w.listeners, id)
	}
}

// Sent returns all messages.
func (w *Wire) Sent() [][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.sent)
}

// Fail has each message fail from now on.
func (w *Wire) Fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failing = err
}

// Hang has each message wait until resume is called, or its context ends.
func (w *Wire) Hang() (resume func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blocked = make(chan struct{})
	return sync.OnceFunc(func() { close(w.blocked) })
}
