package permits

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/shared"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/redis"
)

// settings makes the test binary a process that works under permits, instead of running
// tests: the URL of the store, the address of the resource, and the process's name.
const settings = "HEADGATE_TEST_PERMIT_HOLDER"

const (
	limit   = 3
	ttl     = 500 * time.Millisecond
	margin  = 150 * time.Millisecond
	workers = 3 // of each process
	// callWithin is the deadline of a call to the store.
	callWithin = 100 * time.Millisecond
)

// keys are few, so that processes meet.
var keys = []string{"a", "b"}

// closer is a store that keeps permits.
type closer interface {
	store.Permits
	Close()
}

// open opens the store at a URL.
func open(ctx context.Context, url string, timeout time.Duration) (closer, error) {
	if strings.HasPrefix(url, "postgres://") {
		return postgres.Open(ctx, url+"?pool_max_conns=4&connect_timeout=30", postgres.Timeout(timeout))
	}
	return redis.Open(ctx, url+"?connect_timeout=30s", redis.Timeout(timeout))
}

// hold works under permits until its standard input ends.
func hold(setting string) error {
	parts := strings.Split(setting, " ")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	permits, err := openPatiently(ctx, parts[0])
	if err != nil {
		return err
	}
	defer permits.Close()
	gate, err := shared.New(permits, shared.Config{
		Name: "trial", Limit: limit, TTL: ttl, Margin: margin, Queue: 20, MaxWait: 3 * time.Second, Owner: parts[2],
	})
	if err != nil {
		return err
	}
	errs := make(chan error, workers)
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			w := worker{name: fmt.Sprintf("%d.%d", os.Getpid(), i), careless: i == 0}
			if err := w.work(ctx, gate, parts[1]); err != nil && !errors.Is(err, context.Canceled) {
				errs <- err
			}
		})
	}
	over := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends when the trial has
		close(over)
	}()
	select {
	case err = <-errs:
	case <-over:
	}
	cancel()
	all.Wait()
	end, done := context.WithTimeout(context.Background(), 10*time.Second)
	defer done()
	return errors.Join(err, gate.Close(end))
}

// openPatiently opens a store that may be cut off just then.
func openPatiently(ctx context.Context, url string) (closer, error) {
	for try := 1; ; try++ {
		permits, err := open(ctx, url, callWithin)
		if err == nil || try == 50 {
			return permits, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// worker takes permits and writes under them. A careless one does not look whether its
// lease is lost, so that the resource has something to refuse.
type worker struct {
	name     string
	careless bool
	c        net.Conn
	answers  *bufio.Reader
}

func (w *worker) work(ctx context.Context, gate *shared.Gate, resource string) error {
	var err error
	if w.c, err = net.Dial("tcp", resource); err != nil {
		return err
	}
	defer w.c.Close()
	w.answers = bufio.NewReader(w.c)
	for ctx.Err() == nil {
		r := flow.Request{Key: keys[rand.N(len(keys))], Cost: 1 + rand.Int64N(2)}
		permit, err := gate.Acquire(ctx, r)
		switch _, rejected := errors.AsType[*flow.Rejection](err); {
		case err == nil:
		case ctx.Err() != nil: // the trial is over
			return context.Cause(ctx)
		case rejected || errors.Is(err, headgate.ErrUnavailable) || errors.Is(err, shared.ErrEnded):
			time.Sleep(time.Millisecond)
			continue
		default:
			return err
		}
		err = w.write(permit.Context(ctx), r.Key)
		permit.Done(flow.Success)
		if err != nil {
			return err
		}
	}
	return nil
}

// write writes now and then for a while, or until the lease is lost.
func (w *worker) write(ctx context.Context, key string) error {
	fence, err := shared.FenceOf(ctx)
	for range 1 + rand.N(12) {
		if !w.careless {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // The lease is lost, or the worker ends.
			}
			fence, err = shared.FenceOf(ctx)
		}
		if errors.Is(err, shared.ErrLost) {
			return nil
		} else if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w.c, "%s %s %s\n", key, w.name, fence); err != nil {
			return err
		}
		if _, err := w.answers.ReadString('\n'); err != nil {
			return err
		}
		time.Sleep(rand.N(10 * time.Millisecond))
	}
	return nil
}
