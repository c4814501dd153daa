package redis

import (
	"context"
	_ "embed"
	"time"

	"github.com/headgate/headgate/store"
)

//go:embed lua/document.lua
var documentLua string

var _ store.Documents = (*Store)(nil)

const documentKind = " document "

// ReadDocument implements [store.Documents]. With Sentinels or on a Cluster, a failover can lose
// what was written shortly before.
func (s *Store) ReadDocument(ctx context.Context, key string) (store.Document, error) {
	const doing = "read a document"
	got, err := s.beside(ctx, doing, s.scripts.documents, documentKind, key, []string{s.testTime()})
	if err != nil {
		return store.Document{}, err
	}
	text, err := got.ToString()
	if err != nil {
		return store.Document{}, unavailable(doing, err)
	}
	answer, err := parseAnswers(text)
	if err != nil {
		return store.Document{}, unavailable(doing, err)
	}
	return store.ParseDocument(key, []byte(answer.text), answer.now)
}

// WriteDocument implements [store.Documents].
func (s *Store) WriteDocument(ctx context.Context, read store.Document, value []byte, ttl time.Duration) (bool, error) {
	if err := store.ValidateDocument(&read, value, ttl); err != nil {
		return false, err
	}
	millis := (ttl + time.Millisecond - 1) / time.Millisecond
	const doing = "write a document"
	args := []string{"", read.Version, string(store.NewDocument(value)), string(appendInt(nil, int64(millis)))}
	got, err := s.beside(ctx, doing, s.scripts.documents, documentKind, read.Key, args)
	if err != nil {
		return false, err
	}
	written, err := got.AsInt64()
	if err != nil {
		return false, unavailable(doing, err)
	}
	return written == 1, nil
}
