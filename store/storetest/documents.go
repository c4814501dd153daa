package storetest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// RunDocuments is the conformance suite for [store.Documents]. Each of its cases is a subtest, on a
// fresh store that mk makes as a [PermitsMaker] does.
func RunDocuments(t *testing.T, mk func(t testing.TB, clock func() int64) store.Documents) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, store.Documents, *Clock)
	}{
		{"what is written is read", documentsRead},
		{"of those that have read the same, one writes", documentsOnce},
		{"goroutines lose nothing", documentsAtOnce},
		{"keys of any kind", documentsNames},
		{"invalid calls", documentsInvalid},
		{"a context that has ended", documentsEnded},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := NewClock(Epoch)
			c.run(t, mk(t, clock.Now), clock)
		})
	}
}

func readDocument(t *testing.T, s store.Documents, key string) store.Document {
	t.Helper()
	d, err := s.ReadDocument(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func writeDocument(t *testing.T, s store.Documents, read store.Document, value string) bool {
	t.Helper()
	written, err := s.WriteDocument(context.Background(), read, []byte(value), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return written
}

func documentsRead(t *testing.T, s store.Documents, clock *Clock) {
	first := readDocument(t, s, "a")
	if len(first.Value) != 0 || first.Version != "" || int64(first.Now) != clock.Now() {
		t.Errorf("of nothing, read %+v at %d", first, clock.Now())
	}
	for _, value := range []string{"one", "two\x00\xff", strings.Repeat("x", store.MaxDocument)} {
		if !writeDocument(t, s, readDocument(t, s, "a"), value) {
			t.Fatal("a value was not written, and nobody else writes")
		}
		clock.Add(time.Minute)
		if got := readDocument(t, s, "a"); string(got.Value) != value || got.Key != "a" || int64(got.Now) != clock.Now() {
			t.Fatalf("read %d bytes at %d, want the %d that were written, at %d", len(got.Value), got.Now, len(value), clock.Now())
		}
	}
	if got := readDocument(t, s, "b"); len(got.Value) != 0 {
		t.Errorf("another key has %q", got.Value)
	}
}

func documentsOnce(t *testing.T, s store.Documents, _ *Clock) {
	nothing := readDocument(t, s, "a")
	if !writeDocument(t, s, nothing, "first") || writeDocument(t, s, nothing, "second") {
		t.Error("of two that had read nothing, not exactly the first has written")
	}
	first := readDocument(t, s, "a")
	// The same value is another version.
	if !writeDocument(t, s, first, "first") || writeDocument(t, s, first, "third") {
		t.Error("of two that had read the same, not exactly the first has written")
	}
	if got := readDocument(t, s, "a"); string(got.Value) != "first" {
		t.Errorf("read %q", got.Value)
	}
}

func documentsAtOnce(t *testing.T, s store.Documents, _ *Clock) {
	const writers, each = 4, 10
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for done := 0; done < each; {
				d, err := s.ReadDocument(context.Background(), "sum")
				if err != nil {
					t.Error(err)
					return
				}
				sum, _ := strconv.Atoi(string(d.Value))
				written, err := s.WriteDocument(context.Background(), d, []byte(strconv.Itoa(sum+1)), time.Hour)
				if err != nil {
					t.Error(err)
					return
				}
				if written {
					done++
				}
			}
		})
	}
	all.Wait()
	if got := string(readDocument(t, s, "sum").Value); got != strconv.Itoa(writers*each) {
		t.Errorf("%d additions make %s", writers*each, got)
	}
}

func documentsNames(t *testing.T, s store.Documents, _ *Clock) {
	names := []string{"", "a b", "{a}", "a%20b", "a\x00b", "\xff", "ü", strings.Repeat("k", headgate.MaxKey)}
	for i, name := range names {
		writeDocument(t, s, readDocument(t, s, name), strconv.Itoa(i))
	}
	for i, name := range names {
		if got := string(readDocument(t, s, name).Value); got != strconv.Itoa(i) {
			t.Errorf("%q has %q, want %d", name, got, i)
		}
	}
}

func documentsInvalid(t *testing.T, s store.Documents, _ *Clock) {
	for _, c := range []struct {
		key   string
		value int
		ttl   time.Duration
	}{
		{strings.Repeat("k", headgate.MaxKey+1), 1, time.Second},
		{"a", 0, time.Second},
		{"a", store.MaxDocument + 1, time.Second},
		{"a", 1, 0},
		{"a", 1, store.MaxDocumentTTL + 1},
	} {
		_, err := s.WriteDocument(context.Background(), store.Document{Key: c.key}, make([]byte, c.value), c.ttl)
		if !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("a key of %d bytes, %d bytes, %v: %v, want an ErrInvalid", len(c.key), c.value, c.ttl, err)
		}
	}
}

func documentsEnded(t *testing.T, s store.Documents, _ *Clock) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.WriteDocument(ctx, store.Document{Key: "a"}, []byte("x"), time.Hour); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("a write after the context has ended: %v, want an ErrUnavailable", err)
	}
	if got := readDocument(t, s, "a"); len(got.Value) != 0 {
		t.Errorf("it was written: %q", got.Value)
	}
}
