package redis

import (
	"context"
	"errors"
	"math"
	"sync"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis/internal/refusal"
	"github.com/headgate/headgate/store/redis/internal/target"
)

// within runs do and returns its result. If the context ends first, it returns the context's error,
// and do goes on in the background.
func within[T any](ctx context.Context, tasks *tasks, op headgate.Op, do func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	if !tasks.start(func() {
		value, err := do()
		done <- outcome{value, err}
	}) {
		return do()
	}
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		var none T
		return none, unavailable(op.String(), ctx.Err())
	}
}

// tasks are goroutines that end waits for.
type tasks struct {
	mu      sync.Mutex // guards over, and makes sure that nothing is started after it is set
	running sync.WaitGroup
	over    bool
}

// start runs do in a goroutine. It returns false if end was called before.
func (t *tasks) start(do func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false
	}
	t.running.Go(do)
	return true
}

func (t *tasks) end() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.running.Wait()
}

func isTryAgain(err error) bool {
	var refused *rueidis.RedisError
	return errors.As(err, &refused) && refused.IsTryAgain()
}

// pinged is how many nodes pingAny asks.
const pinged = 4

// pingAny asks some nodes, and returns nil if one of them answers.
func (s *Store) pingAny(ctx context.Context) error {
	return s.pingNodes(ctx, pinged, 1)
}

// pingAll connects to all nodes, so that no request has to, and returns nil if one of them answers.
func (s *Store) pingAll(ctx context.Context) error {
	return s.pingNodes(ctx, math.MaxInt, math.MaxInt)
}

// pingNodes asks up to ask nodes, waits for up to wait answers, and returns nil if a node answers.
// Calls are not cancelled when it returns: cancelling a call that is connecting would fail all
// calls that wait for the same connection.
func (s *Store) pingNodes(ctx context.Context, ask, wait int) error {
	nodes := s.client.Nodes()
	ask = min(ask, len(nodes))
	answers := make(chan error, ask)
	asked := 0
	for _, node := range nodes {
		if asked++; asked > ask {
			break
		}
		if !s.clustered.tasks.start(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(s.deadlines.Timeout, target.DefaultConnectTimeout))
			defer cancel()
			answers <- refusal.Answered(node.Do(ctx, node.B().Ping().Build()).Error())
		}) {
			answers <- rueidis.ErrClosing
		}
	}
	failure, well := rueidis.ErrNoAddr, 0
	for range ask {
		select {
		case err := <-answers:
			if err != nil {
				failure = err
			} else if well++; well >= wait {
				return nil
			}
			continue
		case <-ctx.Done():
			failure = ctx.Err()
		}
		break
	}
	if well > 0 {
		return nil
	}
	return unavailable("ping", failure)
}
