package postgres_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/denycache"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/test/servers"
)

var _ denycache.Bus = (*postgres.Store)(nil)

// await waits until something is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after two minutes it is not so that %s", what)
		}
	}
}

// remembering are denials of a store that are believed for an hour, unless somebody says
// that they are over.
func remembering(t *testing.T, store *postgres.Store) *denycache.Layer {
	t.Helper()
	d, err := denycache.New(store, denycache.Options{All: true, Trust: time.Hour, Bus: store})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close(context.Background()) })
	await(t, "a server listens", func() bool { return d.Stats().Listening })
	return d
}

// TestNewsTravel: what one server gives back or resets is admitted by the other, which
// has remembered that it was denied, and those of another prefix hear nothing.
func TestNewsTravel(t *testing.T) {
	s := servers.StartPostgres(t)
	here := remembering(t, open(t, s, nil, postgres.Prefix("news:")))
	there := remembering(t, open(t, s, nil, postgres.Prefix("news:")))
	elsewhere := remembering(t, open(t, s, nil, postgres.Prefix("others:")))
	c := []headgate.Check{{Rule: headgate.MustRule("r", headgate.Per(3, 30*24*time.Hour)), Key: "k"}}
	for _, op := range []headgate.Op{headgate.OpRefund, headgate.OpReset} {
		await(t, "the key is denied from memory", func() bool {
			got, err := there.Store().Take(t.Context(), headgate.OpTake, c, nil)
			if err != nil {
				t.Fatal(err)
			}
			return got[0].Source == headgate.SourceCache
		})
		if _, err := here.Store().Take(t.Context(), op, c, nil); err != nil {
			t.Fatal(err)
		}
		await(t, "the other server admits what was freed", func() bool {
			got, err := there.Store().Take(t.Context(), headgate.OpTake, c, nil)
			if err != nil {
				t.Fatal(err)
			}
			return headgate.NewVerdict(got).Allowed
		})
	}
	if got := elsewhere.Stats(); got.Received != 0 || !got.Listening {
		t.Errorf("a server of another prefix has heard something: %+v", got)
	}
	// Whoever listens may hear of it before the one who told counts it.
	await(t, "what was given back counts as published", func() bool { return here.Stats().Published >= 2 })
	if got := here.Stats(); got.Published != 2 || got.Dropped != 0 {
		t.Errorf("who gave back: %+v", got)
	}
}

// TestNewsAfterRestart: a server whose connections were lost listens again by itself, and
// then no longer knows what may have been freed meanwhile.
func TestNewsAfterRestart(t *testing.T) {
	s := servers.StartPostgres(t)
	store := open(t, s, nil, postgres.Durable())
	d := remembering(t, store)
	c := []headgate.Check{{Rule: headgate.MustRule("r", headgate.Per(1, 30*24*time.Hour)), Key: "k"}}
	for range 2 {
		if _, err := d.Store().Take(t.Context(), headgate.OpTake, c, nil); err != nil {
			t.Fatal(err)
		}
	}
	s.Kill()
	await(t, "it is known that nobody listens", func() bool { return !d.Stats().Listening && d.Stats().Error != nil })
	if got, err := d.Store().Take(t.Context(), headgate.OpTake, c, nil); err != nil || got[0].Source != headgate.SourceCache {
		t.Errorf("got %+v, %v; want a denial from memory", got, err)
	}
	s.Restart()
	// Past the memory, as another server would that this one cannot hear.
	await(t, "the store is back", func() bool {
		_, err := store.Take(t.Context(), headgate.OpReset, c, nil)
		return err == nil
	})
	await(t, "it listens again", func() bool { return d.Stats().Listening })
	if got, err := d.Store().Take(t.Context(), headgate.OpTake, c, nil); err != nil || !headgate.NewVerdict(got).Allowed {
		t.Errorf("got %+v, %v; want what was freed meanwhile to be admitted", got, err)
	}
	if err := store.Publish(t.Context(), []byte("x")); err != nil {
		t.Errorf("nothing can be published after a restart: %v", err)
	}
}

// TestMessages: messages of every length that is allowed arrive as they were, whatever
// bytes they have, also while no connection of the pool is free.
func TestMessages(t *testing.T) {
	s := servers.StartPostgres(t)
	prefix := postgres.Prefix("messages:\x00'\xff")
	store, speaker := open(t, s, nil, prefix), open(t, s, nil, prefix)
	ctx, cancel := context.WithCancel(t.Context())
	ready, heard, ended := make(chan struct{}), make(chan []byte, 10), make(chan error, 1)
	go func() {
		ended <- store.Subscribe(ctx, func() { close(ready) }, func(m []byte) { heard <- bytes.Clone(m) })
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	conn, err := pgx.Connect(servers.Bounded(t), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(servers.Bounded(t), "BEGIN; LOCK TABLE headgate IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	var stuck sync.WaitGroup
	waiting, release := context.WithCancel(t.Context())
	limiter := headgate.New(store, headgate.MustRule("r", headgate.PerHour(9)))
	for i := range 64 {
		stuck.Go(func() { _, _ = limiter.Allow(waiting, strings.Repeat("k", i)) })
	}
	for _, m := range [][]byte{nil, {0}, []byte("?"), bytes.Repeat([]byte{0, 0xff}, postgres.MaxMessage/2)} {
		for _, from := range []*postgres.Store{store, speaker} {
			if err := from.Publish(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			select {
			case got := <-heard:
				if !bytes.Equal(got, m) {
					t.Errorf("%d bytes arrived as %d others", len(m), len(got))
				}
			case <-time.After(2 * time.Minute):
				t.Fatalf("a message of %d bytes does not arrive", len(m))
			}
		}
	}
	if _, err := conn.Exec(servers.Bounded(t), "NOTIFY "+ask[string](t, s, `SELECT substring(query from 'headgate_[0-9a-f]{16}') FROM pg_stat_activity WHERE query LIKE 'LISTEN %'`)+", 'no message of ours'; COMMIT"); err != nil {
		t.Fatal(err)
	}
	release()
	stuck.Wait()
	var invalid *headgate.InvalidError
	if err := store.Publish(t.Context(), make([]byte, postgres.MaxMessage+1)); !errors.As(err, &invalid) {
		t.Errorf("a message that is too long: %v, want an *InvalidError", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that of the context", err)
	}
	if len(heard) != 0 {
		t.Errorf("%q was heard, and nobody has said it", <-heard)
	}
	store.Close()
	if err := store.Publish(t.Context(), nil); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("a closed store: %v, want ErrUnavailable", err)
	}
	speaker.Close()
	await(t, "all connections are closed", func() bool {
		return ask[int64](t, s, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'headgate'") == 0
	})
}

// TestMessagesOfOthers: an application whose connections listen by themselves, and hand
// what they hear to a function of its own, does not disturb the messages of the store.
func TestMessagesOfOthers(t *testing.T) {
	s := servers.StartPostgres(t)
	config, err := pgxpool.ParseConfig(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "LISTEN others")
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	store, err := postgres.New(servers.Bounded(t), pool, postgres.Timeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ready, heard, ended := make(chan struct{}), make(chan string, 10), make(chan error, 1)
	go func() {
		ended <- store.Subscribe(ctx, func() { close(ready) }, func(m []byte) { heard <- string(m) })
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	if _, err := pool.Exec(servers.Bounded(t), "NOTIFY others, 'b3RoZXJz'"); err != nil {
		t.Fatal(err)
	}
	if err := store.Publish(t.Context(), []byte("ours")); err != nil {
		t.Fatal(err)
	}
	if got := <-heard; got != "ours" {
		t.Errorf("%q was heard, which is another channel's", got)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that of the context", err)
	}
}

// TestDeaf: behind a pooler that passes on no notifications nobody believes to hear, and
// a line that goes deaf is noticed; decisions are made all the same.
func TestDeaf(t *testing.T) {
	t.Parallel()
	s := servers.StartPostgres(t)
	through := newMuffler(t, s.Addr())
	store, err := postgres.Open(servers.Bounded(t), "postgres://headgate@"+through.addr+"/postgres?sslmode=disable&connect_timeout=60", postgres.Timeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	subscribe := func(ready func()) error {
		return store.Subscribe(t.Context(), ready, func([]byte) {})
	}
	through.deaf.Store(true)
	if err := subscribe(func() { t.Error("it is ready, and hears nothing") }); !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), "pooler") {
		t.Errorf("got %v, want ErrUnavailable that says why", err)
	}
	d, err := denycache.New(store, denycache.Options{All: true, Bus: store})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close(t.Context())
	await(t, "the reason is known", func() bool { return d.Stats().Error != nil })
	if d.Stats().Listening {
		t.Error("it listens, and hears nothing")
	}
	if _, err := d.Store().Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: headgate.MustRule("r", headgate.PerHour(9))}}, nil); err != nil {
		t.Error(err)
	}
	through.deaf.Store(false)
	await(t, "it listens", func() bool { return d.Stats().Listening })
	began := false
	if err := subscribe(func() { began = true; through.deaf.Store(true) }); !errors.Is(err, headgate.ErrUnavailable) || !began {
		t.Errorf("began %t, got %v; want ErrUnavailable once the line is deaf", began, err)
	}
}

// muffler forwards what a server and its clients say, but for notifications while it is
// deaf.
type muffler struct {
	addr string
	deaf atomic.Bool
}

func newMuffler(t *testing.T, to string) *muffler {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &muffler{addr: l.Addr().String()}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			all.Go(func() {
				_, _ = io.Copy(server, client) // until either is closed
				_, _ = server.Close(), client.Close()
			})
			all.Go(func() {
				m.forward(client, server)
				_, _ = server.Close(), client.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait() // the store has closed its connections
	})
	return m
}

// forward copies messages of the protocol: a letter, the length of what follows, and that.
func (m *muffler) forward(to io.Writer, from io.Reader) {
	const notification = 'A'
	for {
		message := make([]byte, 5)
		if _, err := io.ReadFull(from, message); err != nil {
			return
		}
		message = append(message, make([]byte, binary.BigEndian.Uint32(message[1:])-4)...)
		if _, err := io.ReadFull(from, message[5:]); err != nil {
			return
		}
		if message[0] == notification && m.deaf.Load() {
			continue
		}
		if _, err := to.Write(message); err != nil {
			return
		}
	}
}
