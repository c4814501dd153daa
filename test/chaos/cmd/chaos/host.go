package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"testing"
)

// host is what the servers and trials take for the test that they belong to. It has
// the methods that they call; others would panic.
type host struct {
	testing.TB

	ctx      context.Context
	out      io.Writer
	failed   bool
	cleanups []func()
}

// run calls f, which may end by Fatal, and then cleans up.
func (h *host) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for i := len(h.cleanups) - 1; i >= 0; i-- {
				h.cleanups[i]()
			}
		}()
		f()
	}()
	<-done
}

func (h *host) Helper() {}

func (h *host) Context() context.Context { return h.ctx }

func (h *host) Cleanup(f func()) { h.cleanups = append(h.cleanups, f) }

func (h *host) Failed() bool { return h.failed }

func (h *host) Logf(format string, args ...any) { fmt.Fprintf(h.out, format+"\n", args...) }

func (h *host) Errorf(format string, args ...any) {
	h.failed = true
	h.Logf(format, args...)
}

func (h *host) Fatal(args ...any) {
	h.Errorf("%s", fmt.Sprint(args...))
	runtime.Goexit()
}

func (h *host) Fatalf(format string, args ...any) {
	h.Errorf(format, args...)
	runtime.Goexit()
}

func (h *host) TempDir() string {
	dir, err := os.MkdirTemp("", "chaos")
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
