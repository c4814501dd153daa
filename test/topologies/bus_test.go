package topologies

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/redis/doctor"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// subscribed has a store listen, and returns what it hears. It ends with the test.
func subscribed(t *testing.T, store *redis.Store) <-chan string {
	t.Helper()
	heard, ready, over := make(chan string, 1000), make(chan struct{}, 10), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		over <- store.Subscribe(ctx, func() { ready <- struct{}{} }, func(message []byte) { heard <- string(message) })
	}()
	t.Cleanup(func() {
		cancel()
		if err := stores.Ended(t, "the subscription ends", over); err == nil {
			t.Error("a subscription ended without saying why")
		}
	})
	select {
	case <-ready:
	case err := <-over:
		over <- err
		t.Fatal(err)
	case <-time.After(2 * time.Minute):
		t.Fatal("no subscription within 2 minutes")
	}
	return heard
}

func hears(t *testing.T, heard <-chan string, want string) {
	t.Helper()
	select {
	case got := <-heard:
		if got != want {
			t.Errorf("heard %q, want %q", got, want)
		}
	case <-time.After(2 * time.Minute):
		t.Errorf("%q was not heard within 2 minutes", want)
	}
}

// passes has a store tell itself something.
func passes(t *testing.T, store *redis.Store) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	heard, ready := make(chan string, 10), make(chan struct{}, 10)
	ended := make(chan error, 1)
	go func() {
		ended <- store.Subscribe(ctx, func() { ready <- struct{}{} }, func(m []byte) { heard <- string(m) })
	}()
	select {
	case <-ready:
	case err := <-ended:
		return err
	}
	err := store.Publish(ctx, []byte("hello"))
	if err == nil {
		select {
		case got := <-heard:
			if got != "hello" {
				err = fmt.Errorf("heard %q", got)
			}
		case err := <-ended:
			return err
		}
	}
	cancel()
	if stopped := <-ended; err == nil && !errors.Is(stopped, context.Canceled) {
		err = stopped
	}
	return err
}

// TestBus: messages reach all stores of the same prefix, in order and whole, and no
// others; on every topology, and with each kind of server. TestFreedOnAllNodes has each topology
// of each kind pass messages on, so that not every pair is tried here.
func TestBus(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind servers.Kind) {
		urls := map[string]string{"single": servers.Start(t, kind).URL()}
		if kind == servers.Valkey {
			urls["sentinel"] = servers.StartSentinel(t, kind).URL()
		} else {
			urls["cluster"] = servers.StartCluster(t, kind).URL()
		}
		for name, text := range urls {
			t.Run(name, func(t *testing.T) {
				here, there := stores.OpenURL(t, text, redis.Prefix("same:")), stores.OpenURL(t, text, redis.Prefix("same:"))
				stranger := stores.OpenURL(t, text, redis.Prefix("other:"))
				at, from, strange := subscribed(t, there), subscribed(t, here), subscribed(t, stranger)
				for i := range 100 {
					if err := here.Publish(t.Context(), fmt.Appendf(nil, "%d \x00\xff", i)); err != nil {
						t.Fatal(err)
					}
				}
				if name == "cluster" {
					// Each message goes to some node, and from there by its own way.
					for _, heard := range []<-chan string{at, from} {
						missing := map[string]bool{}
						for i := range 100 {
							missing[fmt.Sprintf("%d \x00\xff", i)] = true
						}
						for len(missing) > 0 {
							select {
							case m := <-heard:
								delete(missing, m)
							case <-time.After(2 * time.Minute):
								t.Fatalf("%d of 100 messages are missing", len(missing))
							}
						}
					}
				} else {
					for i := range 100 {
						hears(t, at, fmt.Sprintf("%d \x00\xff", i))
						hears(t, from, fmt.Sprintf("%d \x00\xff", i))
					}
				}
				if err := stranger.Publish(t.Context(), []byte("of another")); err != nil {
					t.Fatal(err)
				}
				hears(t, strange, "of another")
				if err := here.Publish(t.Context(), make([]byte, redis.MaxMessage+1)); !errors.Is(err, headgate.ErrInvalid) {
					t.Errorf("too long a message: %v", err)
				}
			})
		}
	})
}

// TestBusEnds: a subscription says when its connection is lost, and that it was not
// permitted.
func TestBusEnds(t *testing.T) {
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		store := stores.OpenURL(t, s.URL())
		ready, over := make(chan struct{}, 10), make(chan error, 1)
		go func() {
			over <- store.Subscribe(t.Context(), func() { ready <- struct{}{} }, func([]byte) {})
		}()
		stores.Ended(t, "the store listens", ready)
		s.Kill()
		if err := stores.Ended(t, "the subscription ends", over); !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("the server is gone: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if err := store.Subscribe(ctx, func() { t.Error("ready, on a server that is gone") }, func([]byte) {}); !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("the server is gone: %v", err)
		}
		s.Restart()
		stores.Do(t, s, "ACL", "SETUSER", "deaf", "on", ">geheim", "~*", "+@all", "resetchannels")
		deaf, err := redis.Open(t.Context(), stores.Patiently(as(t, s.URL(), "deaf", "geheim")), redis.Timeout(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer deaf.Close()
		for name, err := range map[string]error{
			"subscribe": deaf.Subscribe(ctx, func() { t.Error("ready, without permission") }, func([]byte) {}),
			"publish":   deaf.Publish(t.Context(), []byte("x")),
		} {
			if !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), "NOPERM") {
				t.Errorf("%s: %v, want NOPERM", name, err)
			}
		}
		d, err := deaf.Diagnose(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		said := false
		for _, f := range d.Findings {
			said = said || f.What == "messages" && f.Level == doctor.Doubtful && strings.Contains(f.Text, "NOPERM") && strings.Contains(f.Fix, "+subscribe")
		}
		if !said {
			t.Errorf("the diagnosis does not say that messages are not permitted: %+v", d.Findings)
		}
	})
}
