package redis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis/internal/guard"
)

// MaxMessage is the longest message that [Store.Publish] sends, in bytes.
const MaxMessage = 4 << 10

// channel is where messages are published. Channels do not belong to a database. So stores that
// share a server and a prefix receive each other's messages even if they count in different
// databases.
func (s *Store) channel() string { return s.prefix + " news" }

// Publish sends a message to all stores with the same prefix that are subscribed to the server or
// cluster at the moment, including this one. It ends within the store's deadline. If it fails, the
// message may have been sent all the same. A message may arrive twice. Nothing is kept for stores
// that are not connected.
func (s *Store) Publish(ctx context.Context, message []byte) error {
	if len(message) > MaxMessage {
		return headgate.Invalid("message", "", "it has %d bytes, must have at most %d", len(message), MaxMessage)
	}
	ctx, cancel, err := s.deadlines.Limit(ctx)
	if err != nil {
		return unavailable("publish", err)
	}
	defer cancel()
	text := rueidis.BinaryString(message)
	if s.cluster == nil {
		return s.do(ctx, "publish", s.client.B().Publish().Channel(s.channel()).Message(text).Build())
	}
	// Any node can publish. A node that is gone may still be in the list, so the next one is tried
	// after a failure. A message that arrives twice does no harm.
	err = unavailable("publish", rueidis.ErrNoAddr)
	for _, node := range s.client.Nodes() {
		_, err = guard.Do(ctx, s.guards.Any(), func() (struct{}, error) {
			return struct{}{}, node.Do(ctx, node.B().Publish().Channel(s.channel()).Message(text).Build()).Error()
		})
		if err == nil {
			return nil
		}
		err = unavailable("publish", err)
		if ctx.Err() != nil {
			break
		}
	}
	return err
}

// Subscribe calls receive with each message that is published, one after the other, until the
// context has ended or the connection is lost. It returns the reason: an error that wraps
// [headgate.ErrUnavailable], or that of the context. It calls ready when it begins to receive
// messages, and perhaps again later. Neither function may block, because decisions use the same
// connection. End Subscribe before the store is closed.
//
// Behind Sentinels the messages are those of the primary, and after a failover those of the new
// primary. The nodes of a cluster pass messages on to one another.
func (s *Store) Subscribe(ctx context.Context, ready func(), receive func(message []byte)) error {
	var over atomic.Bool
	defer over.Store(true)
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(change rueidis.PubSubSubscription) {
		if change.Kind == "subscribe" && !over.Load() {
			ready()
		}
	})
	// Bounded is needed because connecting ignores the context.
	_, err := guard.Bounded(hooked, func() (struct{}, error) {
		return struct{}{}, s.client.Receive(hooked, s.client.B().Subscribe().Channel(s.channel()).Build(), func(m rueidis.PubSubMessage) {
			if !over.Load() {
				receive([]byte(m.Message))
			}
		})
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		err = errors.New("the connection has ended")
	}
	return unavailable("subscribe", err)
}

//go:embed lua/members.lua
var membersLua string

// maxNode is the longest name of a node, in bytes.
const maxNode = 64

// Members records that a node, named by 1 to 64 bytes, is present for ttl from now, and removes
// nodes whose ttl is over. ttl is 0 to an hour; 0 records that the node has gone. Members returns
// how many nodes are present, and for how long the server has had its data: since the first call,
// or since the data was lost. Nodes count each other if they share a server, a database and a
// prefix.
//
// All nodes are in one sorted set. So on a cluster, only a loss of data on the node that has this
// set is noticed.
func (s *Store) Members(ctx context.Context, node string, ttl time.Duration) (nodes int64, age time.Duration, err error) {
	if len(node) == 0 || len(node) > maxNode || ttl < 0 || ttl > time.Hour {
		return 0, 0, headgate.Invalid("node", "",
			"its name has %d bytes and its time to live is %v, must be 1 to %d and up to %v", len(node), ttl, maxNode, time.Hour)
	}
	ctx, cancel, err := s.deadlines.Limit(ctx)
	if err != nil {
		return 0, 0, unavailable("members", err)
	}
	defer cancel()
	// Nodes ask only every few seconds, so keeping the script on the server would gain nothing.
	script, args := rueidis.NewLuaScript(membersLua), []string{node, string(appendInt(nil, ttl.Microseconds())), s.testTime()}
	key := s.prefix + " members"
	got, err := guard.Do(ctx, s.guard(key), func() ([]int64, error) {
		return script.Exec(ctx, s.client, []string{key}, args).AsIntSlice()
	})
	switch {
	case err != nil:
		return 0, 0, unavailable("members", err)
	case len(got) != 2:
		return 0, 0, unavailable("members", fmt.Errorf("the script's answer has %d numbers, must have 2", len(got)))
	}
	return got[0], time.Duration(got[1]) * time.Microsecond, nil
}
