package client

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api/content"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/store/memory"
)

// fake is a server that counts what it is asked, in a memory store, and misbehaves
// when it is told to.
type fake struct {
	headgatev1.UnimplementedHeadgateServer
	headgatev1.UnimplementedStoreServer

	store  *memory.Store
	target string // what a client connects to
	end    func()

	// refuse is what ends a stream before it begins, and drop what ends it when a
	// message has come, of which decide have been decided and none is answered.
	// respond answers a message in place of the fake.
	refuse  error
	drop    func(n int) (decide int, err error)
	respond func(*headgatev1.TakeStreamRequest) *headgatev1.TakeStreamResponse
	fail    error

	mu                       sync.Mutex // guards what follows
	hold                     chan struct{}
	calls, streams, messages int
	over, decided            int
}

func newFake(t testing.TB, options ...grpc.ServerOption) *fake {
	t.Helper()
	f := &fake{store: memory.New()}
	f.serve(t, "tcp", "127.0.0.1:0", options...)
	return f
}

// serve serves at an address, until end is called or the test has ended.
func (f *fake) serve(t testing.TB, network, addr string, options ...grpc.ServerOption) {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), network, addr)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(append(options, grpc.WaitForHandlers(true))...)
	headgatev1.RegisterHeadgateServer(server, f)
	headgatev1.RegisterStoreServer(server, f)
	var served sync.WaitGroup
	served.Go(func() {
		if err := server.Serve(l); err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	f.target = map[string]string{"tcp": "passthrough:///", "unix": "unix://"}[network] + l.Addr().String()
	f.end = sync.OnceFunc(func() {
		server.Stop()
		served.Wait()
	})
	t.Cleanup(f.end)
}

// numbers are what the server has counted.
type numbers struct{ calls, streams, messages, over, decided int }

func (f *fake) numbers() numbers {
	f.mu.Lock()
	defer f.mu.Unlock()
	return numbers{f.calls, f.streams, f.messages, f.over, f.decided}
}

func (f *fake) count(change func()) (hold chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	return f.hold
}

// wait waits while the server holds its answers back.
func wait(ctx context.Context, hold chan struct{}) {
	if hold == nil {
		return
	}
	select {
	case <-hold:
	case <-ctx.Done():
	}
}

func (f *fake) take(ctx context.Context, r *headgatev1.TakeRequest) (*headgatev1.TakeResponse, error) {
	if f.fail != nil {
		return nil, f.fail
	}
	var checks []headgate.Check
	for _, m := range r.GetChecks() {
		rule, err := content.Rule(m.GetRule())
		if err != nil {
			return nil, err
		}
		c := content.Check(m)
		c.Rule = rule
		checks = append(checks, c)
	}
	decisions, err := f.store.Take(ctx, headgate.Op(r.GetOp()), checks, nil)
	if err != nil {
		return nil, err
	}
	f.count(func() { f.decided++ })
	m := new(headgatev1.TakeResponse)
	for _, d := range decisions {
		m.Decisions = append(m.Decisions, &headgatev1.StoreDecision{
			Check: int32(d.Check), Allowed: d.Allowed, Remaining: d.Remaining, At: int64(d.At), RetryAfterUs: content.Micros(d.RetryAfter), ResetAfterUs: content.Micros(d.ResetAfter),
		})
	}
	return m, nil
}

func (f *fake) Take(ctx context.Context, r *headgatev1.TakeRequest) (*headgatev1.TakeResponse, error) {
	wait(ctx, f.count(func() { f.calls++ }))
	if ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return f.take(ctx, r)
}

func (f *fake) TakeStream(s grpc.BidiStreamingServer[headgatev1.TakeStreamRequest, headgatev1.TakeStreamResponse]) error {
	f.count(func() { f.streams++ })
	if f.refuse != nil {
		return f.refuse
	}
	for {
		r, err := s.Recv()
		if err != nil {
			return nil //nolint:nilerr // The caller has ended the stream.
		}
		hold := f.count(func() { f.messages++; f.over += len(r.GetTakes()) })
		if f.drop != nil {
			n, err := f.drop(len(r.GetTakes()))
			for _, t := range r.GetTakes()[:n] {
				if _, err := f.take(s.Context(), t.GetRequest()); err != nil {
					return err
				}
			}
			return err
		}
		if f.respond != nil {
			if err := s.Send(f.respond(r)); err != nil {
				return err
			}
			continue
		}
		wait(s.Context(), hold)
		m := new(headgatev1.TakeStreamResponse)
		for _, t := range r.GetTakes() {
			answer, err := f.take(s.Context(), t.GetRequest())
			result := &headgatev1.NumberedTakeResult{Number: t.GetNumber(), Response: answer}
			if err != nil {
				result.Error = status.Convert(err).Proto()
			}
			// The last first: nothing may depend on the order.
			m.Results = append([]*headgatev1.NumberedTakeResult{result}, m.Results...)
		}
		if err := s.Send(m); err != nil {
			return err
		}
	}
}

func (f *fake) Check(ctx context.Context, r *headgatev1.CheckRequest) (*headgatev1.Verdict, error) {
	wait(ctx, f.count(func() { f.calls++ }))
	return f.check(r)
}

func (f *fake) check(r *headgatev1.CheckRequest) (*headgatev1.Verdict, error) {
	if f.fail != nil {
		return nil, f.fail
	}
	return &headgatev1.Verdict{Allowed: true, At: int64(len(r.GetChecks()))}, nil
}

func (f *fake) CheckStream(s grpc.BidiStreamingServer[headgatev1.CheckStreamRequest, headgatev1.CheckStreamResponse]) error {
	f.count(func() { f.streams++ })
	if f.refuse != nil {
		return f.refuse
	}
	for {
		r, err := s.Recv()
		if err != nil {
			return nil //nolint:nilerr // The caller has ended the stream.
		}
		f.count(func() { f.messages++; f.over += len(r.GetChecks()) })
		m := new(headgatev1.CheckStreamResponse)
		for _, c := range r.GetChecks() {
			v, err := f.check(c.GetRequest())
			result := &headgatev1.NumberedResult{Number: c.GetNumber(), Verdict: v}
			if err != nil {
				result.Error = status.Convert(err).Proto()
			}
			m.Results = append(m.Results, result)
		}
		if err := s.Send(m); err != nil {
			return err
		}
	}
}

func (f *fake) CheckBatch(_ context.Context, r *headgatev1.CheckBatchRequest) (*headgatev1.CheckBatchResponse, error) {
	f.count(func() { f.calls++; f.over += len(r.GetRequests()) })
	m := new(headgatev1.CheckBatchResponse)
	for _, c := range r.GetRequests() {
		v, _ := f.check(c)
		m.Results = append(m.Results, &headgatev1.CheckResult{Verdict: v})
	}
	if len(r.GetRequests()) == 7 {
		m.Results = m.Results[1:] // as if one had got lost
	}
	return m, nil
}

func (f *fake) Peek(context.Context, *headgatev1.PeekRequest) (*headgatev1.Verdict, error) {
	return &headgatev1.Verdict{Allowed: true}, f.fail
}

func (f *fake) Reset(context.Context, *headgatev1.ResetRequest) (*headgatev1.ResetResponse, error) {
	return &headgatev1.ResetResponse{Rules: []string{"r"}}, f.fail
}

func (f *fake) Cancel(_ context.Context, r *headgatev1.CancelRequest) (*headgatev1.Verdict, error) {
	if r.GetReservation() != "an id" {
		return nil, serverError(codes.NotFound, reasonNoReservation)
	}
	return new(headgatev1.Verdict), f.fail
}

// serverError is an error as the server makes them.
func serverError(code codes.Code, reason string, fields ...string) error {
	bad := new(errdetails.BadRequest)
	for _, f := range fields {
		bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: f, Description: "is wrong"})
	}
	s, err := status.New(code, "what the server says").WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: domain}, bad)
	return errors.Join(err, s.Err())
}

func dial(t testing.TB, f *fake, options ...Option) *Client {
	t.Helper()
	c, err := New(f.target, append([]Option{Plaintext(), Timeout(MaxTimeout)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	connected(t, c)
	return c
}

// connected waits until there is a connection: calls fail at once when one was slow to
// come about.
func connected(t testing.TB, c *Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for state := c.conn.GetState(); state != connectivity.Ready; state = c.conn.GetState() {
		c.conn.Connect()
		if !c.conn.WaitForStateChange(ctx, state) {
			t.Fatalf("not connected within %v: %v", within, state)
		}
	}
}

// within bounds everything that a test waits for.
const within = 2 * time.Minute

// eventually waits until what is expected of another goroutine has come true.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// streaming makes one call after the other until they go over a stream.
func streaming(t testing.TB, f *fake, c *Client) {
	t.Helper()
	eventually(t, "a call over a stream", func() bool {
		if _, err := c.Store().Take(t.Context(), headgate.OpPeek, []headgate.Check{{Rule: hour}}, nil); err != nil {
			t.Fatal(err)
		}
		return f.numbers().over > 0
	})
}

// hour is a rule that no test uses up.
var hour = headgate.MustRule("hour", headgate.Per(1_000_000, time.Hour))
