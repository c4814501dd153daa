package cas

import (
	"context"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var _ store.Documents = (*Ledger)(nil)

// withDocument calls do with what is kept for a document, and with the clock. If do returns a
// value, it is written with an end. It may call do again if the attempt is repeated.
func (l *Ledger) withDocument(ctx context.Context, key string, do func(raw []byte, now headgate.Instant) (next []byte, until headgate.Instant, err error)) error {
	// The name of no counter begins like this.
	name := l.settings.prefix + "\x00document " + key
	return l.turns.do(ctx, []string{name}, func(b *batch) error {
		next, until, err := do(b.value(name), b.now)
		if err == nil && next != nil {
			b.setValue(name, next, until, 0)
		}
		return err
	})
}

// ReadDocument implements [store.Documents].
func (l *Ledger) ReadDocument(ctx context.Context, key string) (d store.Document, err error) {
	err = l.withDocument(ctx, key, func(raw []byte, now headgate.Instant) ([]byte, headgate.Instant, error) {
		var err error
		d, err = store.ParseDocument(key, raw, now)
		return nil, 0, err
	})
	return d, err
}

// WriteDocument implements [store.Documents].
func (l *Ledger) WriteDocument(ctx context.Context, read store.Document, value []byte, ttl time.Duration) (written bool, err error) {
	if err := store.ValidateDocument(&read, value, ttl); err != nil {
		return false, err
	}
	next := store.NewDocument(value)
	err = l.withDocument(ctx, read.Key, func(raw []byte, now headgate.Instant) ([]byte, headgate.Instant, error) {
		there, err := store.ParseDocument(read.Key, raw, now)
		if written = err == nil && there.Version == read.Version; !written {
			return nil, 0, err
		}
		return next, now + headgate.Instant(ttl.Microseconds()), nil
	})
	return written && err == nil, err
}
