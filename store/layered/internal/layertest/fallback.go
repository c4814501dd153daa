package layertest

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/memory"
)

// Fallback makes a fallback around a primary, which ends with the test.
func Fallback(t *testing.T, primary headgate.Store, options fallback.Options) *fallback.Layer {
	t.Helper()
	options.Local = memory.New(memory.MaxBytes(memory.MinMaxBytes))
	f, err := fallback.New(primary, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return f
}

// Fail has the primary fail until the breaker is open.
func Fail(t *testing.T, f *fallback.Layer, primary *Scripted, h Health) {
	t.Helper()
	primary.Feel(h)
	c := headgate.Check{Rule: headgate.MustRule("trigger", headgate.PerSecond(1000)), Hints: headgate.Hints{OnError: headgate.OnErrorAllow}}
	for range 1000 {
		if f.Stats().State == fallback.Open {
			return
		}
		Take(t, f.Store(), c)
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the breaker does not open")
}

// Recover waits until the primary decides again.
func Recover(t *testing.T, f *fallback.Layer, primary *Scripted) {
	t.Helper()
	primary.Feel(Well)
	for range 10_000 {
		if f.Stats().State == fallback.Closed {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the breaker does not close")
}
