package memory

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var _ store.Documents = (*Store)(nil)

const (
	// documentShare is the part of the store's memory that documents may take: one in so many.
	documentShare = 8
	// documentBytes is about the memory of a document besides its key and value.
	documentBytes = 120
)

// documents are the documents of all keys.
type documents struct {
	most  int64      // bytes that documents may take
	mu    sync.Mutex // guards the fields below
	kept  map[string]kept
	bytes int64 // that they take, about
	// sweepAt is the number of documents above which ended ones are dropped.
	sweepAt int
}

type kept struct {
	raw   []byte
	until int64
}

func (k *kept) size(key string) int64 { return int64(documentBytes + len(key) + len(k.raw)) }

// ReadDocument implements [store.Documents].
func (s *Store) ReadDocument(ctx context.Context, key string) (store.Document, error) {
	if err := ended(ctx); err != nil {
		return store.Document{}, err
	}
	d := &s.documents
	d.mu.Lock()
	defer d.mu.Unlock()
	now := s.clockNow()
	return store.ParseDocument(key, d.read(key, int64(now)), now)
}

// read returns what is kept for a key, without what has ended.
func (d *documents) read(key string, now int64) []byte {
	if k := d.kept[key]; k.until > now {
		return k.raw
	}
	return nil
}

// WriteDocument implements [store.Documents]. If the documents take all the memory that they may,
// the error wraps [headgate.ErrUnavailable].
func (s *Store) WriteDocument(ctx context.Context, read store.Document, value []byte, ttl time.Duration) (bool, error) {
	if err := cmp.Or(store.ValidateDocument(&read, value, ttl), ended(ctx)); err != nil {
		return false, err
	}
	d := &s.documents
	d.mu.Lock()
	defer d.mu.Unlock()
	now := int64(s.clockNow())
	raw := d.read(read.Key, now)
	if there, err := store.ParseDocument(read.Key, raw, 0); err != nil || there.Version != read.Version {
		return false, err
	}
	if d.kept == nil {
		d.kept = make(map[string]kept)
	}
	next := kept{store.NewDocument(value), now + ttl.Microseconds()}
	more := next.size(read.Key)
	if len(d.kept) > d.sweepAt || d.bytes+more > d.most {
		d.sweep(now)
	}
	// The document that is replaced stays if there is no room for the other one.
	if before, there := d.kept[read.Key]; there {
		more -= before.size(read.Key)
	}
	if d.bytes+more > d.most {
		return false, fmt.Errorf("%w: memory: the documents take %d bytes, and may take %d", headgate.ErrUnavailable, d.bytes, d.most)
	}
	d.kept[read.Key] = next
	d.bytes += more
	return true, nil
}

// sweep drops what has ended. It runs when the number of documents has doubled.
func (d *documents) sweep(now int64) {
	for key, k := range d.kept {
		if k.until <= now {
			d.bytes -= k.size(key)
			delete(d.kept, key)
		}
	}
	d.sweepAt = max(2*len(d.kept), 64)
}
