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

// speak sends the keys in the queue. After a quiet time the first message leaves at once;
// later ones leave when they are full or newsPause has passed.
func (n *news) speak(ctx context.Context) {
	hashes := make([]uint64, 0, newsKeys)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case hash := <-n.queue:
			hashes = n.gather(ctx, append(hashes[:0], hash), pause.C)
			n.send(ctx, hashes)
			pause.Reset(newsPause)
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastNewsWithin)
	defer cancel()
	for hashes = n.drain(hashes[:0]); len(hashes) > 0; hashes = n.drain(hashes[:0]) {
		n.send(last, hashes)
	}
}

// gather appends keys to hashes until there are enough for a message, or the pause has
// ended and the queue is empty.
func (n *news) gather(ctx context.Context, hashes []uint64, pause <-chan time.Time) []uint64 {
	for len(hashes) < newsKeys {
		select {
		case hash := <-n.queue:
			hashes = append(hashes, hash)
			continue
		case <-pause:
		case <-ctx.Done():
		}
		break
	}
	return n.drain(hashes)
}

// drain appends the keys in the queue, up to as many as a message has room for.
func (n *news) drain(hashes []uint64) []uint64 {
	for len(hashes) < newsKeys {
		select {
		case hash := <-n.queue:
			hashes = append(hashes, hash)
			continue
		default:
		}
		break
	}
	slices.Sort(hashes)
	return slices.Compact(hashes)
}

func (n *news) send(ctx context.Context, hashes []uint64) {
	message := make([]byte, 1, 1+8*newsKeys)
	message[0] = newsVersion
	for _, hash := range hashes {
		message = binary.BigEndian.AppendUint64(message, hash)
	}
	for try := 1; ; try++ {
		sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.within(ctx))
		err := n.bus.Publish(sending, message)
		cancel()
		if err == nil {
			n.published.Add(int64(len(hashes)))
			return
		}
		n.failure.Store(&err)
		// A message may arrive twice without harm, so it can be repeated.
		if try == newsTries || !sleep.For(ctx, newsRetry<<(try-1)) {
			n.dropped.Add(int64(len(hashes)))
			return
		}
	}
}

// within returns how long an attempt may take. When the process ends, an attempt that has begun
// is still finished; only the last message has a shorter time.
func (n *news) within(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return max(0, min(newsWithin, time.Until(end)))
	}
	return newsWithin
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
