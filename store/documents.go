package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/headgate/headgate"
)

// The bounds of [Documents].
const (
	// MaxDocument is the largest value of a document, in bytes.
	MaxDocument = 256 << 10
	// MaxDocumentTTL is how long a document may be kept without being written again.
	MaxDocumentTTL = 400 * 24 * time.Hour
)

// Documents keeps small values that several processes change in turn: one reads a document,
// decides, and writes it if nobody else has written it since. It is for state that changes every
// few seconds, not with each request. Implementations are safe for concurrent use.
//
// Errors are an [*headgate.InvalidError] if the call is at fault, or wrap [headgate.ErrUnavailable]
// if the store did not answer. Whether a write counted is unknown then.
type Documents interface {
	// ReadDocument returns a document, and the store's clock. A document that does not exist has no
	// value.
	ReadDocument(ctx context.Context, key string) (Document, error)
	// WriteDocument replaces the document that was read by value, and reports whether it did: false
	// means that somebody has written it since, or that it was forgotten. It is kept for ttl, and may
	// be forgotten from then on.
	WriteDocument(ctx context.Context, read Document, value []byte, ttl time.Duration) (bool, error)
}

// Document is what [Documents.ReadDocument] has read.
type Document struct {
	// Key is the key under which it was read: up to headgate.MaxKey bytes, of any kind.
	Key string
	// Value is empty if there is no document. It must not be changed.
	Value []byte
	// Now is the store's clock, read together with the value.
	Now headgate.Instant
	// Version identifies what was written last. It is empty if there is no document.
	Version string
}

// versionBytes is the length of a version. Versions are random, so that one is never met again.
const versionBytes = 8

// NewDocument returns what a store keeps for a value: a new version, and the value.
func NewDocument(value []byte) []byte {
	raw := make([]byte, versionBytes, versionBytes+len(value))
	_, _ = rand.Read(raw) // It never fails.
	return append(raw, value...)
}

// ParseDocument returns the document of what a store keeps for a key; nil if it keeps nothing. The
// document keeps raw.
func ParseDocument(key string, raw []byte, now headgate.Instant) (Document, error) {
	d := Document{Key: key, Now: now}
	switch {
	case len(raw) == 0:
		return d, nil
	case len(raw) < versionBytes:
		return d, fmt.Errorf("%w: a document has %d bytes, must have %d at least", headgate.ErrUnavailable, len(raw), versionBytes)
	}
	d.Version, d.Value = string(raw[:versionBytes]), raw[versionBytes:]
	return d, nil
}

// ValidateDocument returns an [*headgate.InvalidError] if no store could keep the value.
func ValidateDocument(read *Document, value []byte, ttl time.Duration) error {
	var problems headgate.Problems
	if len(read.Key) > headgate.MaxKey {
		problems.Add("key", "the key has %d bytes, must have at most %d", len(read.Key), headgate.MaxKey)
	}
	if len(value) == 0 || len(value) > MaxDocument {
		problems.Add("value", "the value has %d bytes, must have 1 to %d", len(value), MaxDocument)
	}
	if ttl <= 0 || ttl > MaxDocumentTTL {
		problems.Add("ttl", "the ttl is %v, must be positive and at most %v", ttl, MaxDocumentTTL)
	}
	return problems.Err("document")
}

// DocumentsOf returns the documents of a store. The error is a [*headgate.InvalidError] that names
// the store if it keeps none.
func DocumentsOf(s headgate.Store) (Documents, error) {
	if d, ok := s.(Documents); ok {
		return d, nil
	}
	return nil, keepsNo(s, "documents")
}
