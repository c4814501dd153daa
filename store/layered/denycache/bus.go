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
	// newsVersion begins every message; the hashes of keys follow, eight bytes each.
	// Messages that begin with anything else are of another version.
	newsVersion = 1
	newsKeys    = 120 // in a message
	// newsPause is the shortest time between two messages that are not full. Without it,
	// a server that gives back many units would send everybody a message for nearly each key.
	newsPause = 10 * time.Millisecond
	// newsQueue is how many keys may wait to be sent.
	newsQueue = 1 << 13
	// newsWithin bounds each of the newsTries attempts to send a message, and lastNewsWithin
	// the last message of a process that ends.
	newsWithin     = time.Second
	newsTries      = 5
	newsRetry      = 50 * time.Millisecond // doubles
	lastNewsWithin = 200 * time.Millisecond
	// The times between two attempts to listen.
	firstListen = 50 * time.Millisecond
	lastListen  = 10 * time.Second
)

// news tells the other processes which keys to forget, and listens to them. No request waits
// for it. Keys that find no room in the queue are dropped and counted; other processes then
// believe their denials until Trust is over.
type news struct {
	bus   Bus // nil if there is none
	table *table
	queue chan uint64

	published, dropped, received, unknown atomic.Int64
	listening                             atomic.Bool
	failure                               atomic.Pointer[error]

	stop    context.CancelFunc
	running sync.WaitGroup
}

func (n *news) start(bus Bus, table *table) {
	if bus == nil {
		return
	}
	n.bus, n.table, n.queue = bus, table, make(chan uint64, newsQueue)
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	n.running.Go(func() { n.listen(ctx) })
	n.running.Go(func() { n.speak(ctx) })
}

func (n *news) close(ctx context.Context) error {
	if n.bus == nil {
		return nil
	}
	n.stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.running.Wait()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("deny cache: telling the others of the last keys: %w", ctx.Err())
	}
}

func (n *news) stats() Stats {
	s := Stats{
		Published: n.published.Load(), Dropped: n.dropped.Load(),
		Received: n.received.Load(), Unknown: n.unknown.Load(), Listening: n.listening.Load(),
	}
	if err := n.failure.Load(); err != nil {
		s.Error = *err
	}
	return s
}

// publish tells the other processes to forget a key.
func (n *news) publish(hash uint64) {
	if n.bus == nil {
		return
	}
	select {
	case n.queue <- hash:
	default:
		n.dropped.Add(1)
	}
}

// speak sends the keys in the queue. After a quiet time the first message leaves at once; the next
// one leaves after newsPause, or at once if the last one was full.
func (n *news) speak(ctx context.Context) {
	var keys []uint64
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case hash := <-n.queue:
			keys = n.gather(append(keys[:0], hash))
			// An attempt that has begun when the process ends is still finished.
			n.send(ctx, context.WithoutCancel(ctx), keys)
			if len(keys) < newsKeys {
				sleep.For(ctx, newsPause)
			}
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastNewsWithin)
	defer cancel()
	for keys = n.gather(keys[:0]); len(keys) > 0; keys = n.gather(keys[:0]) {
		n.send(last, last, keys)
	}
}

// gather appends the keys in the queue, up to as many as a message has room for.
func (n *news) gather(keys []uint64) []uint64 {
	for len(keys) < newsKeys {
		select {
		case hash := <-n.queue:
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
func (n *news) send(ctx, calls context.Context, keys []uint64) {
	message := make([]byte, 1, 1+8*newsKeys)
	message[0] = newsVersion
	for _, hash := range keys {
		message = binary.BigEndian.AppendUint64(message, hash)
	}
	for try := 1; ; try++ {
		sending, cancel := context.WithTimeout(calls, newsWithin)
		err := n.bus.Publish(sending, message)
		cancel()
		if err == nil {
			n.published.Add(int64(len(keys)))
			return
		}
		n.failure.Store(&err)
		// A message may arrive twice without harm, so it can be repeated.
		if try == newsTries || !sleep.For(ctx, newsRetry<<(try-1)) {
			n.dropped.Add(int64(len(keys)))
			return
		}
	}
}

var errListening = errors.New("the connection has ended")

// listen receives messages of others, and connects again when the connection ends.
func (n *news) listen(ctx context.Context) {
	pause := firstListen
	for ctx.Err() == nil {
		err := n.bus.Subscribe(ctx, func() {
			// Messages may have been missed until now.
			n.table.forgetAll()
			n.listening.Store(true)
		}, n.hear)
		if n.listening.Swap(false) {
			pause = firstListen
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errListening
		}
		n.failure.Store(&err)
		if !sleep.For(ctx, sleep.Jittered(pause)) {
			return
		}
		pause = min(2*pause, lastListen)
	}
}

// hear forgets the keys in a message.
func (n *news) hear(message []byte) {
	n.received.Add(1)
	if len(message) < 9 || message[0] != newsVersion || len(message)%8 != 1 || len(message) > 1+8*newsKeys {
		n.unknown.Add(1)
		return
	}
	for hashes := message[1:]; len(hashes) > 0; hashes = hashes[8:] {
		n.table.forget(binary.BigEndian.Uint64(hashes))
	}
}
