package app

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// failures logs that the store with a candidate's counters has stopped answering: once when that begins, now and then while it
// lasts, and once when it is over. A line for each request would fill the disk just when somebody
// needs to read the log. So would a line for each short failure of an unstable store: a failure
// that begins soon after the last line is logged only if it lasts.
type failures struct {
	logger *slog.Logger
	every  time.Duration

	failing atomic.Bool // The way of a good answer: one load.

	mu     sync.Mutex // Guards what follows, which only failures touch.
	count  int64      // since the log was last told that they are over
	logged bool       // the log knows that the store is failing
	last   time.Time  // when it was told of a failure
}

func newFailures(logger *slog.Logger) *failures {
	return &failures{logger: logger, every: 10 * time.Second}
}

// hooks returns the hooks that log.
func (f *failures) hooks() headgate.Hooks {
	return headgate.Hooks{
		Decided: func(context.Context, headgate.Op, []headgate.Check, []headgate.Decision, time.Duration) {
			if f.failing.Load() {
				f.over()
			}
		},
		Failed: func(ctx context.Context, _ headgate.Op, _ []headgate.Check, err error, took time.Duration) {
			if ofStore(ctx, err) {
				f.add(err, took)
			}
		},
	}
}

// ofStore reports whether an error says something about the store: the caller has not gone, and the
// request was a valid one.
func ofStore(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errors.Is(err, headgate.ErrInvalid) && !errors.Is(err, headgate.ErrConflict) && !errors.Is(err, errors.ErrUnsupported)
}

func (f *failures) add(err error, took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	now := time.Now()
	f.failing.Store(true)
	switch {
	case now.Sub(f.last) < f.every:
		return
	case f.logged:
		f.logger.Error("the candidate's store still does not answer", slog.Any("error", err), slog.Int64("failed", f.count))
	default:
		f.logger.Error("the candidate's store does not answer; nothing is compared", slog.Any("error", err), slog.Duration("took", took))
	}
	f.logged, f.last = true, now
}

func (f *failures) over() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.failing.CompareAndSwap(true, false) || !f.logged {
		return
	}
	f.logger.Info("the candidate's store answers again", slog.Int64("failed", f.count))
	f.logged, f.count = false, 0
}
