package client

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/store/memory"
)

func check(n int) *headgatev1.CheckRequest {
	return &headgatev1.CheckRequest{Checks: make([]*headgatev1.Check, n), Id: "i", Entries: map[string]string{"a": "b"}}
}

// allAtOnce runs do in n goroutines, and returns when all have ended.
func allAtOnce(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// TestFewCallsAreCalls and many go over one stream, which stays.
func TestFewCallsAreCalls(t *testing.T) {
	f := newFake(t)
	hold := make(chan struct{})
	f.hold = hold
	c := dial(t, f, StreamFrom(4))
	limiter := headgate.New(c.Store(), hour)
	var all sync.WaitGroup
	take := func() {
		if _, err := limiter.Allow(t.Context(), "k"); err != nil {
			t.Error(err)
		}
	}
	for range 3 {
		all.Go(take)
	}
	eventually(t, "three calls", func() bool { return f.numbers().calls == 3 })
	if n := f.numbers(); n.streams != 0 {
		t.Errorf("with three calls under way: %+v", n)
	}
	all.Go(take)
	eventually(t, "a stream", func() bool { return c.store.takes.open.Load() != nil })
	for range 100 {
		all.Go(take)
	}
	eventually(t, "calls over the stream", func() bool { return f.numbers().messages > 0 })
	close(hold)
	all.Wait()
	n := f.numbers()
	if n.streams != 1 || n.calls != 4 || n.over != 100 || n.decided != 104 {
		t.Errorf("got %+v", n)
	}
	take()
	if now := f.numbers(); now.over != 101 {
		t.Errorf("a call with the stream there: %+v", now)
	}
}

// TestNeverOverAdmits: whatever way calls take, a limit holds.
func TestNeverOverAdmits(t *testing.T) {
	for name, option := range map[string]Option{"calls": NoStreams(), "a stream": StreamFrom(1), "both": StreamFrom(8)} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, newFake(t), option)
			limiter := headgate.New(c.Store(), headgate.MustRule("r", headgate.Per(300, time.Hour)))
			var mu sync.Mutex
			admitted := 0
			allAtOnce(20, func(int) {
				for range 25 {
					d, err := limiter.Allow(t.Context(), "k")
					if err != nil {
						t.Error(err)
						return
					}
					if d.Allowed {
						mu.Lock()
						admitted++
						mu.Unlock()
					}
				}
			})
			if admitted != 300 {
				t.Errorf("%d of 500 were admitted, want 300", admitted)
			}
		})
	}
}

// TestBrokenStream: what was sent over a stream that breaks is not sent again, and
// what was not, is.
func TestBrokenStream(t *testing.T) {
	f := newFake(t)
	c := dial(t, f, StreamFrom(1))
	streaming(t, f, c)
	before := f.numbers()
	f.drop = func(n int) (int, error) { return n, status.Error(codes.Unavailable, "a proxy went away") }
	_, err := c.Store().Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: hour}}, nil)
	if !errors.Is(err, headgate.ErrUnavailable) || status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
	if n := f.numbers(); n.decided != before.decided+1 {
		t.Errorf("the call was decided %d times", n.decided-before.decided)
	}
	f.drop = nil
	// It goes on with calls, and with a stream again in a while.
	eventually(t, "another stream", func() bool {
		if _, err := c.Store().Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: hour}}, nil); err != nil {
			t.Fatal(err)
		}
		return f.numbers().streams == before.streams+1 && f.numbers().over > before.over+1
	})
}

// TestServerShutDown: a stream that ends with its server loses nothing and charges
// nothing twice.
func TestServerShutDown(t *testing.T) {
	f := newFake(t)
	c := dial(t, f, StreamFrom(1))
	streaming(t, f, c)
	before := f.numbers()
	f.drop = func(int) (int, error) { return 0, serverError(codes.Unavailable, reasonStreamEnded) }
	got, err := c.Store().Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: hour, Cost: 10}}, nil)
	if err != nil || got[0].Remaining != 999_990 {
		t.Errorf("got %v, %v", got, err)
	}
	if n := f.numbers(); n.decided != before.decided+1 || n.calls != before.calls+1 {
		t.Errorf("got %+v after %+v, want one call more", n, before)
	}
}

// TestNoStreams: a server without streams is asked by calls, and not over and over
// for a stream.
func TestNoStreams(t *testing.T) {
	for name, refuse := range map[string]error{
		"none":          status.Error(codes.Unimplemented, "unknown method"),
		"another token": serverError(codes.Unauthenticated, reasonToken),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.refuse = refuse
			c := dial(t, f, StreamFrom(1))
			allAtOnce(8, func(int) {
				for range 20 {
					if _, err := c.Store().Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: hour}}, nil); err != nil {
						t.Error(err)
						return
					}
				}
			})
			if n := f.numbers(); n.decided != 160 || n.streams != 1 {
				t.Errorf("got %+v", n)
			}
		})
	}
}

// TestHangingServer: calls end by their deadline, however they are made, and with
// their context.
func TestHangingServer(t *testing.T) {
	for name, option := range map[string]Option{"calls": NoStreams(), "a stream": StreamFrom(1)} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			c, patient := dial(t, f, option, Timeout(100*time.Millisecond)), dial(t, f, option)
			takeBy := func(ctx context.Context, c *Client) error {
				_, err := c.Store().Take(ctx, headgate.OpTake, []headgate.Check{{Rule: hour}}, nil)
				return err
			}
			take := func(ctx context.Context) error { return takeBy(ctx, patient) }
			if name != "calls" {
				streaming(t, f, patient)
				before := f.numbers().over
				eventually(t, "a call over a stream", func() bool {
					_ = takeBy(t.Context(), c) // It may have ended by its deadline.
					return f.numbers().over > before
				})
			}
			f.count(func() { f.hold = make(chan struct{}) })
			for range 3 {
				if err := takeBy(t.Context(), c); !errors.Is(err, headgate.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if err := take(ctx); !errors.Is(err, headgate.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			gone, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			if err := take(gone); !errors.Is(err, headgate.ErrUnavailable) || !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			if err := take(gone); !errors.Is(err, headgate.ErrUnavailable) || !errors.Is(err, context.Canceled) {
				t.Errorf("a context that has ended: %v", err)
			}
			f.count(func() { close(f.hold); f.hold = nil })
			for _, c := range []*Client{c, patient} {
				eventually(t, "an answer", func() bool { return takeBy(t.Context(), c) == nil })
				if n := c.flight.n.Load(); n != 0 {
					t.Errorf("%d calls are under way", n)
				}
			}
		})
	}
}

// TestMaxInFlight: one call more than the bound fails at once.
func TestMaxInFlight(t *testing.T) {
	f := newFake(t)
	hold := make(chan struct{})
	f.hold = hold
	c := dial(t, f, MaxInFlight(3), NoStreams())
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if _, err := c.Check(t.Context(), check(1)); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "three calls", func() bool { return f.numbers().calls == 3 })
	for name, err := range map[string]error{
		"check": second(c.Check(t.Context(), check(1))),
		"peek":  second(c.Peek(t.Context(), new(headgatev1.PeekRequest))),
		"take":  second(c.Store().Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: hour}}, nil)),
	} {
		if !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), "at most 3") {
			t.Errorf("%s: %v", name, err)
		}
	}
	close(hold)
	all.Wait()
	if _, err := c.Check(t.Context(), check(1)); err != nil {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestServerAway: calls fail at once while there is no server, and work when there
// is one again.
func TestServerAway(t *testing.T) {
	for name, option := range map[string]Option{"calls": NoStreams(), "a stream": StreamFrom(1)} {
		t.Run(name, func(t *testing.T) {
			// Nobody else can get the socket while the server is away, as they could a port.
			f := &fake{store: memory.New()}
			socket := filepath.Join(t.TempDir(), "s")
			f.serve(t, "unix", socket)
			c := dial(t, f, option)
			if err := errors.Join(c.Ping(t.Context()), c.Store().Ping(t.Context())); err != nil {
				t.Fatal(err)
			}
			f.end()
			eventually(t, "an error", func() bool {
				err := c.Store().Ping(t.Context())
				if err != nil && !errors.Is(err, headgate.ErrUnavailable) {
					t.Fatalf("got %v", err)
				}
				return err != nil
			})
			f.serve(t, "unix", socket)
			eventually(t, "an answer", func() bool { return c.Store().Ping(t.Context()) == nil })
		})
	}
}

// TestClose ends calls that are under way, and those that come later.
func TestClose(t *testing.T) {
	for name, option := range map[string]Option{"calls": NoStreams(), "a stream": StreamFrom(1)} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			c, err := New(f.target, Plaintext(), Timeout(MaxTimeout), option)
			if err != nil {
				t.Fatal(err)
			}
			connected(t, c)
			if name != "calls" {
				streaming(t, f, c)
			}
			before := f.numbers()
			f.count(func() { f.hold = make(chan struct{}) })
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					if err := c.Store().Ping(t.Context()); !errors.Is(err, headgate.ErrUnavailable) {
						t.Errorf("a call under way ends with %v", err)
					}
				})
			}
			eventually(t, "a call", func() bool { n := f.numbers(); return n.calls+n.messages > before.calls+before.messages })
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			all.Wait()
			if err := c.Store().Ping(t.Context()); !errors.Is(err, headgate.ErrUnavailable) || !errors.Is(err, errClosed) {
				t.Errorf("a call after the end: %v", err)
			}
		})
	}
}

// TestHostileServer: whatever a server says, a call gets an answer of its own or an
// error.
func TestHostileServer(t *testing.T) {
	one := []*headgatev1.StoreDecision{{Allowed: true}}
	for name, respond := range map[string]func(n uint64) *headgatev1.TakeStreamResponse{
		"nothing in the result": func(n uint64) *headgatev1.TakeStreamResponse {
			return &headgatev1.TakeStreamResponse{Results: []*headgatev1.NumberedTakeResult{{Number: n}}}
		},
		"too few decisions": func(n uint64) *headgatev1.TakeStreamResponse {
			return &headgatev1.TakeStreamResponse{Results: []*headgatev1.NumberedTakeResult{{Number: n, Response: new(headgatev1.TakeResponse)}}}
		},
		"too many decisions and more answers": func(n uint64) *headgatev1.TakeStreamResponse {
			r := &headgatev1.NumberedTakeResult{Number: n, Response: &headgatev1.TakeResponse{Decisions: append(one, one...)}}
			return &headgatev1.TakeStreamResponse{Results: []*headgatev1.NumberedTakeResult{{Number: n + 1000}, {}, r, r, {Number: n + 1}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			c := dial(t, f, StreamFrom(1))
			streaming(t, f, c)
			f.respond = func(r *headgatev1.TakeStreamRequest) *headgatev1.TakeStreamResponse {
				return respond(r.GetTakes()[0].GetNumber())
			}
			for range 3 {
				got, err := c.Store().Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: hour}}, nil)
				if len(got) != 0 || !errors.Is(err, headgate.ErrUnavailable) {
					t.Errorf("got %v, %v", got, err)
				}
			}
		})
	}
}

// TestDecisions: a denial may be about some checks only; nothing else may.
func TestDecisions(t *testing.T) {
	two := headgate.MustRule("two", headgate.PerSecond(1), headgate.PerHour(9))
	checks := []headgate.Check{{Rule: two, Key: "a"}, {Rule: hour, Key: "b", Shadow: true}, {Rule: two, Key: "c"}}
	d := func(check int32, allowed bool) *headgatev1.StoreDecision {
		return &headgatev1.StoreDecision{Check: check, Allowed: allowed}
	}
	for name, c := range map[string]struct {
		from []*headgatev1.StoreDecision
		want int
	}{
		"all":                      {[]*headgatev1.StoreDecision{d(0, true), d(0, true), d(1, true), d(2, true), d(2, true)}, 5},
		"a denial of the last":     {[]*headgatev1.StoreDecision{d(2, true), d(2, false)}, 2},
		"denials of two":           {[]*headgatev1.StoreDecision{d(0, false), d(0, true), d(2, true), d(2, false)}, 4},
		"half a check":             {[]*headgatev1.StoreDecision{d(2, false)}, 0},
		"two halves":               {[]*headgatev1.StoreDecision{d(0, false), d(2, false)}, 0},
		"an admission of some":     {[]*headgatev1.StoreDecision{d(2, true), d(2, true)}, 0},
		"the denial of a shadow":   {[]*headgatev1.StoreDecision{d(1, false)}, 0},
		"a check that is not":      {[]*headgatev1.StoreDecision{d(3, false), d(3, false)}, 0},
		"one that never could be":  {[]*headgatev1.StoreDecision{d(-1, false)}, 0},
		"nothing":                  {nil, 0},
		"more than there could be": {[]*headgatev1.StoreDecision{d(0, true), d(0, true), d(1, true), d(2, true), d(2, true), d(2, true)}, 0},
	} {
		kept := []headgate.Decision{{At: 7}}
		got, err := decisions(checks, c.from, kept)
		if len(got) != 1+c.want || got[0].At != 7 || (err == nil) != (c.want > 0) {
			t.Errorf("%s: %d decisions, %v", name, len(got)-1, err)
			continue
		}
		for i, d := range got[1:] {
			from := c.from[i]
			if d.Check != int(from.GetCheck()) || d.Rule != checks[d.Check].Rule || d.Allowed != from.GetAllowed() || d.Shadow != checks[d.Check].Shadow {
				t.Errorf("%s: decision %d is %+v", name, i, d)
			}
		}
	}
}

// TestErrors: each error of the server is the library's, with what the server said.
func TestErrors(t *testing.T) {
	f := newFake(t)
	c := dial(t, f, StreamFrom(1))
	eventually(t, "a stream", func() bool {
		return second(c.Check(t.Context(), check(1))) == nil && f.numbers().over > 0
	})
	for _, e := range []struct {
		err  error
		want []error
	}{
		{serverError(codes.InvalidArgument, reasonInvalid, "checks[0].key", "cost"), []error{headgate.ErrInvalid}},
		{serverError(codes.NotFound, reasonUnknownRule), []error{headgate.ErrInvalid}},
		{serverError(codes.Aborted, reasonConflict), []error{headgate.ErrConflict}},
		{serverError(codes.NotFound, reasonNoReservation), []error{headgate.ErrNoReservation}},
		{serverError(codes.Unimplemented, reasonNoLedger), []error{errors.ErrUnsupported}},
		{serverError(codes.Unavailable, reasonUnavailable), []error{headgate.ErrUnavailable}},
		{serverError(codes.Unauthenticated, reasonToken), []error{headgate.ErrUnavailable}},
		{status.Error(codes.Unimplemented, "unknown service"), []error{headgate.ErrUnavailable}},
		{status.Error(codes.NotFound, "some proxy"), []error{headgate.ErrUnavailable}},
		{status.Error(codes.DeadlineExceeded, "late"), []error{headgate.ErrUnavailable, context.DeadlineExceeded}},
		{status.Error(codes.Canceled, "gone"), []error{headgate.ErrUnavailable, context.Canceled}},
	} {
		f.fail = e.err
		for way, err := range map[string]error{
			"a call":   second(c.Peek(t.Context(), new(headgatev1.PeekRequest))),
			"a stream": second(c.Check(t.Context(), check(1))),
		} {
			for _, want := range e.want {
				if !errors.Is(err, want) {
					t.Errorf("%s: %v is not %v", way, err, want)
				}
			}
			if s, ok := status.FromError(err); !ok || s.Code() != status.Code(e.err) {
				t.Errorf("%s: %v does not have the server's status", way, err)
			}
			var invalid *headgate.InvalidError
			if errors.As(err, &invalid) && len(invalid.Problems) == 0 {
				t.Errorf("%s: %v names no problem", way, err)
			}
		}
	}
}

func TestAPI(t *testing.T) {
	f := newFake(t)
	c := dial(t, f)
	rules, err := c.Reset(t.Context(), new(headgatev1.ResetRequest))
	if err != nil || len(rules) != 1 {
		t.Errorf("reset: %v, %v", rules, err)
	}
	if _, err := c.Cancel(t.Context(), "an id"); err != nil {
		t.Errorf("cancel: %v", err)
	}
	if _, err := c.Cancel(t.Context(), "another"); !errors.Is(err, headgate.ErrNoReservation) {
		t.Errorf("cancel: %v", err)
	}
	requests := make([]*headgatev1.CheckRequest, 2*MaxBatch+3)
	for i := range requests {
		requests[i] = check(i % 7)
	}
	results, err := c.CheckBatch(t.Context(), requests)
	if err != nil || len(results) != len(requests) {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for i, r := range results {
		if r.GetVerdict().GetAt() != int64(i%7) {
			t.Fatalf("result %d is %v", i, r)
		}
	}
	if n := f.numbers(); n.calls != 3 {
		t.Errorf("%d calls", n.calls)
	}
	if _, err := c.CheckBatch(t.Context(), requests[:7]); !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), "6 results for 7") {
		t.Errorf("a result that is missing: %v", err)
	}
	for name, err := range map[string]error{
		"refund":  second(c.Refund(t.Context(), new(headgatev1.RefundRequest))),
		"reserve": second(c.Reserve(t.Context(), new(headgatev1.ReserveRequest))),
		"settle":  second(c.Settle(t.Context(), new(headgatev1.SettleRequest))),
		"explain": second(c.Explain(t.Context(), new(headgatev1.ExplainRequest))),
	} {
		// This server has them not.
		if !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestToken: it is shown with every call and every stream, and never said.
func TestToken(t *testing.T) {
	const token = "a-token-of-the-store"
	var mu sync.Mutex
	wrong := 0
	look := func(ctx context.Context) {
		if got := metadata.ValueFromIncomingContext(ctx, "authorization"); len(got) != 1 || got[0] != "Bearer "+token {
			mu.Lock()
			wrong++
			mu.Unlock()
		}
	}
	f := newFake(t,
		grpc.UnaryInterceptor(func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			look(ctx)
			return next(ctx, r)
		}),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			look(s.Context())
			return next(srv, s)
		}))
	c := dial(t, f, Token(token), StreamFrom(1))
	streaming(t, f, c)
	mu.Lock()
	defer mu.Unlock()
	if wrong != 0 {
		t.Errorf("%d calls or streams came without it", wrong)
	}
	_, err := New("x:1", Plaintext(), Token(token+"\n"))
	if !errors.Is(err, headgate.ErrInvalid) || strings.Contains(err.Error(), token) {
		t.Errorf("a token that no header can hold: %v", err)
	}
}

// TestMistakes: all of them are named at once.
func TestMistakes(t *testing.T) {
	for _, m := range []struct {
		target  string
		options []Option
		want    []string
	}{
		{"x:1", nil, []string{"TLS"}},
		{"x:1", []Option{TLS(nil), Plaintext(), Timeout(0), MaxInFlight(0), StreamFrom(0)}, []string{"both", "Timeout", "MaxInFlight", "StreamFrom"}},
		{"x:1", []Option{Plaintext(), Timeout(2 * MaxTimeout), MaxInFlight(1 << 30), StreamFrom(1<<20 + 1)}, []string{"Timeout", "MaxInFlight", "StreamFrom"}},
		{"", []Option{Plaintext()}, []string{"target"}},
	} {
		_, err := New(m.target, m.options...)
		var invalid *headgate.InvalidError
		if !errors.As(err, &invalid) || len(invalid.Problems) != len(m.want) {
			t.Errorf("%s: %v", m.target, err)
			continue
		}
		for i, want := range m.want {
			if !strings.Contains(invalid.Problems[i].Text, want) {
				t.Errorf("%s: %q does not say %s", m.target, invalid.Problems[i].Text, want)
			}
		}
	}
	zone := headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Align: headgate.AlignDay, Location: time.FixedZone("home", 1)}
	store := dial(t, newFake(t)).Store()
	_, err := store.Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: headgate.MustRule("r", zone)}}, nil)
	if !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("a time zone that nobody knows: %v", err)
	}
	if _, err := store.Recall(t.Context(), ""); !errors.Is(err, headgate.ErrNoReservation) {
		t.Errorf("no id: %v", err)
	}
}

// TestManyRules: what is kept of rules is bounded.
func TestManyRules(t *testing.T) {
	store := dial(t, newFake(t)).Store()
	for i := range 2*maxRules + 1 {
		if _, err := store.rule(headgate.MustRule(fmt.Sprint("r", i), headgate.PerSecond(1))); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(store.rules); n > maxRules {
		t.Errorf("%d rules are kept", n)
	}
}
