package memory_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

func TestDocuments(t *testing.T) {
	storetest.RunDocuments(t, func(_ testing.TB, clock func() int64) store.Documents {
		return memory.New(memory.Clock(clock))
	})
}

// TestDocumentsAreBounded: a document that finds no room leaves the one that it would replace, and
// there is room again when others have ended.
func TestDocumentsAreBounded(t *testing.T) {
	now := int64(1e15)
	s := memory.New(memory.Clock(func() int64 { return now }), memory.MaxBytes(memory.MinMaxBytes))
	write := func(key string, size int, ttl time.Duration) error {
		d, err := s.ReadDocument(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		written, err := s.WriteDocument(t.Context(), d, make([]byte, size), ttl)
		if written != (err == nil) {
			t.Fatalf("written is %v, and the error %v", written, err)
		}
		return err
	}
	if err := write("first", 100, time.Hour); err != nil {
		t.Fatal(err)
	}
	n := 0
	for n < 1000 && write(fmt.Sprint(n), 1000, time.Minute) == nil {
		n++
	}
	if n < 50 || n > memory.MinMaxBytes/8/1000 {
		t.Errorf("there was room for %d documents of 1,000 bytes", n)
	}
	if err := write("first", 10_000, time.Hour); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("without room: %v, want an ErrUnavailable", err)
	}
	if d, err := s.ReadDocument(t.Context(), "first"); err != nil || len(d.Value) != 100 {
		t.Errorf("the document has %d bytes and %v, want the 100 that it had", len(d.Value), err)
	}
	now += time.Minute.Microseconds()
	if err := write("first", 10_000, time.Hour); err != nil {
		t.Errorf("after the others have ended: %v", err)
	}
}
