package redis

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/bubbletest"
)

func TestPending(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		p := pending{most: 3}
		for range 3 {
			if err := p.begin(); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.begin(); err == nil || !strings.Contains(err.Error(), "3 calls have no answer yet, at most 3") {
			t.Errorf("a fourth call: got %v", err)
		}
		for range 3 {
			p.end(context.DeadlineExceeded) // they still stand in the queue
		}
		if err := p.begin(); err != nil {
			t.Errorf("no probe is let through: %v", err)
		}
		if err := p.begin(); err == nil {
			t.Error("a second probe is let through at once")
		}
		p.end(errors.New("connection reset"))
		for range 3 {
			if err := p.begin(); err != nil {
				t.Errorf("after the connection broke: %v", err)
			}
		}
		for range 3 {
			p.end(nil)
		}
		p.close()
		if err := p.begin(); !errors.Is(err, errClosed) {
			t.Errorf("after the end: got %v", err)
		}
	})
}
