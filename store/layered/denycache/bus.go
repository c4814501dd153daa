package denycache

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/sleep"
)

// Bus carries short messages between all processes that share a store. It may lose
// some. It is safe for concurrent use.
type Bus interface {
	// Publish sends a message of up to a kilobyte to all subscribers, including this process.
	Publish(ctx context.Context, message []byte) error
	// Subscribe calls receive with each message, one after the other, until the context has ended
	// or the connection is lost, and returns the reason. It calls ready once messages that are
	// published from then on will arrive. Neither function blocks, and receive does not keep the
	// message.
	Subscribe(ctx context.Context, ready func(), receive func(message []byte)) error
}

const (
	// messageVersion begins every message; the hashes of keys follow, eight bytes each.
	// Messages that begin with anything else are of another version.
	messageVersion = 1
	messageKeys    = 120 // in a message
	// messagePause is the shortest time between two messages that are not full. Without it,
	// a server that gives back many units would send everybody a message for nearly each key.
	messagePause = 10 * time.Millisecond
	// maxQueue is how many keys may wait to be sent.
	maxQueue = 1 << 13
	// sendWithin bounds each of the sendTries attempts to send a message, and lastSendWithin
	// the last message of a process that ends.
	sendWithin     = time.Second
	sendTries      = 5
	sendRetry      = 50 * time.Millisecond // doubles
	lastSendWithin = 200 * time.Millisecond
	// The times between two attempts to listen.
	firstListen = 50 * time.Millisecond
	lastListen  = 10 * time.Second
)

// peers tells the other processes which keys to forget, and listens to them. No request waits
// for it. Keys that find no room in the queue are dropped and counted; other processes then
// believe their denials until Trust is over.
type peers struct {
	bus   Bus // nil if there is none
	table *table
	queue chan uint64

	published, dropped, received, unknown atomic.Int64
	listening                             atomic.Bool
	failure                               atomic.Pointer[error]

	stop    context.CancelFunc
	running sync.WaitGroup
}

func (p *peers) start(bus Bus, table *table) {
	if bus == nil {
		return
	}
	p.bus, p.table, p.queue = bus, table, make(chan uint64, maxQueue)
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.running.Go(func() { p.listen(ctx) })
	p.running.Go(func() { p.sendAll(ctx) })
}

func (p *peers) close(ctx context.Context) error {
	if p.bus == nil {
		return nil
	}
	p.stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.running.Wait()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("deny cache: telling the others of the last keys: %w", ctx.Err())
	}
}

func (p *peers) stats() Stats {
	s := Stats{
		Published: p.published.Load(), Dropped: p.dropped.Load(),
		Received: p.received.Load(), Unknown: p.unknown.Load(), Listening: p.listening.Load(),
	}
	if err := p.failure.Load(); err != nil {
		s.Error = *err
	}
	return s
}

// publish tells the other processes to forget a key.
func (p *peers) publish(hash uint64) {
	if p.bus == nil {
		return
	}
	select {
	case p.queue <- hash:
	default:
		p.dropped.Add(1)
	}
}

// sendAll sends the keys in the queue. After a quiet time the first message leaves at once; the next
// one leaves after messagePause, or at once if the last one was full.
func (p *peers) sendAll(ctx context.Context) {
	var keys []uint64
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case hash := <-p.queue:
			keys = p.gather(append(keys[:0], hash))
			// An attempt that has begun when the process ends is still finished.
			p.send(ctx, context.WithoutCancel(ctx), keys)
			if len(keys) < messageKeys {
				sleep.For(ctx, messagePause)
			}
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSendWithin)
	defer cancel()
	for keys = p.gather(keys[:0]); len(keys) > 0; keys = p.gather(keys[:0]) {
		p.send(last, last, keys)
	}
}

// gather appends the keys in the queue, up to as many as a message has room for.
func (p *peers) gather(keys []uint64) []uint64 {
	for len(keys) < messageKeys {
		select {
		case hash := <-p.queue:
			if !slices.Contains(keys, hash) {
				keys = append(keys, hash)
			}
			continue
		default:
		}
		break
	}
	return keys
}

// send sends a message, again and again while ctx lasts. The attempts are bounded by calls.
func (p *peers) send(ctx, calls context.Context, keys []uint64) {
	message := make([]byte, 1, 1+8*messageKeys)
	message[0] = messageVersion
	for _, hash := range keys {
		message = binary.BigEndian.AppendUint64(message, hash)
	}
	for try := 1; ; try++ {
		sending, cancel := context.WithTimeout(calls, sendWithin)
		err := p.bus.Publish(sending, message)
		cancel()
		if err == nil {
			p.published.Add(int64(len(keys)))
			return
		}
		p.failure.Store(&err)
		// A message may arrive twice without harm, so it can be repeated.
		if try == sendTries || !sleep.For(ctx, sendRetry<<(try-1)) {
			p.dropped.Add(int64(len(keys)))
			return
		}
	}
}

var errListening = errors.New("the connection has ended")

// listen receives messages of others, and connects again when the connection ends.
func (p *peers) listen(ctx context.Context) {
	pause := firstListen
	for ctx.Err() == nil {
		err := p.bus.Subscribe(ctx, func() {
			// Messages may have been missed until now.
			p.table.forgetAll()
			p.listening.Store(true)
		}, p.receive)
		if p.listening.Swap(false) {
			pause = firstListen
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errListening
		}
		p.failure.Store(&err)
		if !sleep.For(ctx, sleep.Jittered(pause)) {
			return
		}
		pause = min(2*pause, lastListen)
	}
}

// receive forgets the keys in a message.
func (p *peers) receive(message []byte) {
	p.received.Add(1)
	if len(message) < 9 || message[0] != messageVersion || len(message)%8 != 1 || len(message) > 1+8*messageKeys {
		p.unknown.Add(1)
		return
	}
	for hashes := message[1:]; len(hashes) > 0; hashes = hashes[8:] {
		p.table.forget(binary.BigEndian.Uint64(hashes))
	}
}
