package memory

import (
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
	mu    sync.Mutex // guards the other fields
	kept  map[string]kept
	bytes int64
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
	if err := store.ValidateDocument(&read, value, ttl); err != nil {
		return false, err
	}
	if err := ended(ctx); err != nil {
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
	d.drop(read.Key)
	if len(d.kept) > d.sweepAt {
		d.sweep(now)
	}
	if most := s.permits.most * permitShare / documentShare; d.bytes+next.size(read.Key) > most {
		d.sweep(now)
		if d.bytes+next.size(read.Key) > most {
			return false, fmt.Errorf("%w: memory: the documents take %d bytes, which is all that they may", headgate.ErrUnavailable, d.bytes)
		}
	}
	d.kept[read.Key] = next
	d.bytes += next.size(read.Key)
	return true, nil
}

func (d *documents) drop(key string) {
	if k, there := d.kept[key]; there {
		d.bytes -= k.size(key)
		delete(d.kept, key)
	}
}

// sweep drops what has ended. It runs when the number of documents has doubled.
func (d *documents) sweep(now int64) {
	for key, k := range d.kept {
		if k.until <= now {
			d.drop(key)
		}
	}
	d.sweepAt = max(2*len(d.kept), 64)
}
