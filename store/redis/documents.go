package redis

import (
	"context"
	_ "embed"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis/internal/guard"
)

//go:embed lua/document.lua
var documentLua string

var _ store.Documents = (*Store)(nil)

// ReadDocument implements [store.Documents]. With Sentinels or on a Cluster, a failover can lose
// what was written shortly before.
func (s *Store) ReadDocument(ctx context.Context, key string) (store.Document, error) {
	now := ""
	if s.clock != nil {
		now = string(appendInt(nil, s.clock()))
	}
	m, err := s.document(ctx, "read a document", key, now)
	if err != nil {
		return store.Document{}, err
	}
	text, err := m.ToString()
	if err != nil || len(text) < 7 {
		return store.Document{}, unavailable("read a document", errShortAnswer)
	}
	at := int64(0)
	for i := range 7 {
		at = at<<8 | int64(text[i])
	}
	return store.ParseDocument(key, []byte(text[7:]), headgate.Instant(at))
}

// WriteDocument implements [store.Documents].
func (s *Store) WriteDocument(ctx context.Context, read store.Document, value []byte, ttl time.Duration) (bool, error) {
	if err := store.ValidateDocument(&read, value, ttl); err != nil {
		return false, err
	}
	millis := (ttl + time.Millisecond - 1) / time.Millisecond
	m, err := s.document(ctx, "write a document", read.Key, "", read.Version, string(store.NewDocument(value)), strconv.FormatInt(int64(millis), 10))
	if err != nil {
		return false, err
	}
	written, err := m.AsInt64()
	if err != nil {
		return false, unavailable("write a document", err)
	}
	return written == 1, nil
}

// document makes a call of document.lua. It does not wait behind decisions.
func (s *Store) document(ctx context.Context, doing, key string, args ...string) (rueidis.RedisMessage, error) {
	ctx, cancel, err := s.deadlines.Limit(ctx)
	if err != nil {
		return rueidis.RedisMessage{}, unavailable(doing, err)
	}
	defer cancel()
	// No rule's name begins with a space.
	name := string(appendEscaped(append([]byte(s.prefix), " document "...), key))
	began := time.Now()
	got, err := guard.Call(ctx, s.guard(name), func() (rueidis.RedisMessage, error) {
		return s.scripts.documents.Exec(ctx, s.client, []string{name}, args).ToMessage()
	})
	if s.observing.tell != nil {
		s.observe(slotOf(name), doing, began, err)
	}
	if err != nil {
		return got, unavailable(doing, err)
	}
	return got, nil
}
