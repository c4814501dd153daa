package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/server/decide"
)

type checkStream = grpc.BidiStreamingClient[headgatev1.CheckStreamRequest, headgatev1.CheckStreamResponse]

func openStream(t testing.TB, api headgatev1.HeadgateClient) checkStream {
	t.Helper()
	s, err := api.CheckStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func numbered(first uint64, requests ...*headgatev1.CheckRequest) *headgatev1.CheckStreamRequest {
	m := new(headgatev1.CheckStreamRequest)
	for i, r := range requests {
		m.Checks = append(m.Checks, &headgatev1.NumberedCheck{Number: first + uint64(i), Request: r})
	}
	return m
}

func send(t testing.TB, s checkStream, m *headgatev1.CheckStreamRequest) {
	t.Helper()
	if err := s.Send(m); err != nil {
		t.Fatal(err)
	}
}

// results receives n of them, by number.
func results(t testing.TB, s checkStream, n int) map[uint64]*headgatev1.NumberedResult {
	t.Helper()
	all := make(map[uint64]*headgatev1.NumberedResult)
	for len(all) < n {
		m, err := s.Recv()
		if err != nil {
			t.Fatalf("after %d of %d results: %v", len(all), n, err)
		}
		for _, r := range m.GetResults() {
			if all[r.GetNumber()] != nil {
				t.Fatalf("number %d is answered twice", r.GetNumber())
			}
			all[r.GetNumber()] = r
		}
	}
	return all
}

// eachWay runs a test with requests decided one after another, and side by side.
func eachWay(t *testing.T, run func(t *testing.T, o Options)) {
	t.Run("in turn", func(t *testing.T) { run(t, Options{}) })
	t.Run("side by side", func(t *testing.T) { run(t, Options{SideBySide: true}) })
}

// everyKind are requests that between them use every field there is.
func everyKind() []*headgatev1.CheckRequest {
	two := int64(2)
	call := map[string]string{"route": "POST /v1/messages", "model": "m"}
	return []*headgatev1.CheckRequest{
		checking(by("wide", "k", 7)),
		checking(by("wide", strings.Repeat("long", 200)), by("direct", "é|\\"), by("watched", "", 2)),
		checking(by("direct", "k", headgate.MaxCount)),
		{Entries: map[string]string{"route": "POST /v1/token", "api_key": "k1"}, Cost: &two},
		{Entries: map[string]string{"route": "GET /export/x"}},
		{Entries: map[string]string{"route": "GET /wp-login"}},
		{Entries: map[string]string{"route": "GET /"}},
		{},
		{Checks: []*headgatev1.Check{by("wide", "k")}, Id: "once", LifetimeMs: 1000},
		{Checks: []*headgatev1.Check{by("wide", "k")}, Id: "once", LifetimeMs: 1000},
		checking(by("nobody", "k"), by("", "", -1)),
		{Id: strings.Repeat("i", 300), LifetimeMs: -1},
		{Entries: call, Usage: &headgatev1.Usage{InputTokens: 100, CachedInputTokens: 10, CacheWriteTokens: 20, OutputTokens: 30}},
		{Entries: call, Usage: &headgatev1.Usage{Model: "other", InputTokens: 1}},
		{Entries: call, Usage: &headgatev1.Usage{}},
		{Entries: call, Usage: &headgatev1.Usage{InputTokens: -1, OutputTokens: headgate.MaxCount + 1}},
		checking(by("budget", "")),
		{Checks: []*headgatev1.Check{by("wide", "k")}, Usage: &headgatev1.Usage{InputTokens: 1}},
	}
}

// TestStreamSaysWhatCallsSay: one by one, both get the same answers.
func TestStreamSaysWhatCallsSay(t *testing.T) {
	eachWay(t, func(t *testing.T, o Options) {
		calls, streamed := serve(t, newBackend(t), Options{}), openStream(t, serve(t, newBackend(t), o))
		for i, r := range everyKind() {
			want, err := calls.Check(t.Context(), r)
			send(t, streamed, numbered(uint64(i), r))
			got := results(t, streamed, 1)[uint64(i)]
			if got == nil || !proto.Equal(got.GetVerdict(), want) {
				t.Errorf("request %d: got %v, want %v", i, got, want)
			}
			if err == nil != (got.GetError() == nil) || err != nil && !proto.Equal(got.GetError(), status.Convert(err).Proto()) {
				t.Errorf("request %d: got error %v, want %v", i, got.GetError(), err)
			}
		}
	})
}

// TestManyInOneMessage: requests that come together are all answered.
func TestManyInOneMessage(t *testing.T) {
	eachWay(t, func(t *testing.T, o Options) {
		api := serve(t, newBackend(t), o)
		s := openStream(t, api)
		const messages, together = 5, MaxTogether
		for i := range messages {
			all := make([]*headgatev1.CheckRequest, together)
			for j := range all {
				all[j] = checking(by("wide", "k"))
			}
			send(t, s, numbered(uint64(i*together), all...))
		}
		allowed, left := 0, map[int64]bool{}
		for _, r := range results(t, s, messages*together) {
			if r.GetVerdict().GetAllowed() {
				allowed++
				left[r.GetVerdict().GetDecisions()[0].GetRemaining()] = true
			}
		}
		if allowed != 1000 || len(left) != 1000 {
			t.Errorf("%d of %d were admitted with %d different remainders, want 1000", allowed, messages*together, len(left))
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("a stream that its caller has ended ends with %v", err)
		}
	})
}

// TestLargeAnswers: however much a message asks for, no answer is larger than any
// client takes.
func TestLargeAnswers(t *testing.T) {
	eachWay(t, func(t *testing.T, o Options) {
		s := openStream(t, serve(t, newBackend(t), o))
		checks := make([]*headgatev1.Check, headgate.MaxChecks)
		for i := range checks {
			checks[i] = by("auth.createToken", fmt.Sprint(i))
		}
		all := make([]*headgatev1.CheckRequest, MaxTogether)
		for i := range all {
			all[i] = checking(checks...)
		}
		send(t, s, numbered(0, all...))
		for n := 0; n < MaxTogether; {
			m, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if size := proto.Size(m); size > 4*maxAnswer {
				t.Errorf("an answer has %d bytes", size)
			}
			n += len(m.GetResults())
		}
	})
}

// TestSideBySide: a request that waits for the store does not hold up others.
func TestSideBySide(t *testing.T) {
	b := newBackend(t)
	s := openStream(t, serve(t, b, Options{SideBySide: true}))
	hold := make(chan struct{})
	b.with(func(b *backend) { b.hold = hold })
	send(t, s, numbered(1, checking(by("wide", "a"))))
	b.waitFor(t, 1)
	b.with(func(b *backend) { b.hold = nil })
	send(t, s, numbered(2, checking(by("wide", "b")), checking(by("wide", "c"))))
	if r := results(t, s, 2); r[2] == nil || r[3] == nil {
		t.Errorf("got %v, want the answers to 2 and 3", r)
	}
	close(hold)
	if r := results(t, s, 1); r[1] == nil {
		t.Errorf("got %v, want the answer to 1", r)
	}
}

// TestFewerPermitsThanRequests: beyond the bound, requests wait and are
// answered all the same.
func TestFewerPermitsThanRequests(t *testing.T) {
	b := newBackend(t)
	service := New(b.decider(), Options{SideBySide: true})
	for range maxPermits - 3 {
		service.permits.take()
	}
	api := headgatev1.NewHeadgateClient(connect(t, service.Register))
	hold := make(chan struct{})
	b.with(func(b *backend) { b.hold = hold })
	s := openStream(t, api)
	all := make([]*headgatev1.CheckRequest, 50)
	for i := range all {
		all[i] = checking(by("wide", fmt.Sprint(i)))
	}
	send(t, s, numbered(0, all...))
	b.waitFor(t, 3)
	close(hold)
	if n := len(results(t, s, len(all))); n != len(all) {
		t.Errorf("%d results", n)
	}
	batch, err := api.CheckBatch(t.Context(), &headgatev1.CheckBatchRequest{Requests: all})
	if err != nil || len(batch.GetResults()) != len(all) {
		t.Errorf("a batch: %v", err)
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if n := len(service.permits); n != maxPermits-3 {
		t.Errorf("%d permits are out, want those of before, %d", n, maxPermits-3)
	}
}

// TestHostileMessages end the stream and charge nothing.
func TestHostileMessages(t *testing.T) {
	over := make([]*headgatev1.CheckRequest, MaxTogether+1)
	for i := range over {
		over[i] = checking(by("wide", ""))
	}
	eachWay(t, func(t *testing.T, o Options) {
		for name, text := range map[string]string{
			"no protobuf":        "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
			"a length too large": "\x0a\x7f",
			"an item cut off":    "\x0a\x02\x12\x05",
			"field 0":            "\x00",
			"a group's end":      "\x0c",
			"too many":           string(must(proto.Marshal(numbered(0, over...)))),
		} {
			t.Run(name, func(t *testing.T) {
				b := newBackend(t)
				s := openStream(t, serve(t, b, o))
				if err := s.SendMsg(&frame{Message: new(headgatev1.CheckStreamRequest).ProtoReflect(), out: []byte(text)}); err != nil {
					t.Fatal(err)
				}
				m, err := s.Recv()
				if code, reason, _ := problem(t, err); code != codes.InvalidArgument || reason != ReasonInvalid {
					t.Errorf("got %v, %v", m, err)
				}
				if b.calls() != 0 {
					t.Errorf("%d requests were decided", b.calls())
				}
			})
		}
		for name, text := range map[string]string{
			"no request":         "\x0a\x00",
			"a wrong request":    "\x0a\x04\x08\x07\x12\x00",
			"text of other kind": "\x0a\x08\x08\x07\x12\x04\x12\x02\x0a\xff",
			"not UTF-8":          "\x0a\x0b\x08\x07\x12\x07\x12\x05\x0a\x03\xff\xfe\xfd",
			"nothing":            "",
		} {
			t.Run(name, func(t *testing.T) {
				s := openStream(t, serve(t, newBackend(t), o))
				if err := s.SendMsg(&frame{Message: new(headgatev1.CheckStreamRequest).ProtoReflect(), out: []byte(text)}); err != nil {
					t.Fatal(err)
				}
				// The stream goes on.
				send(t, s, numbered(9, checking(by("wide", "k"))))
				if r := results(t, s, 1+strings.Count(text, "\x0a\x00")+strings.Count(text, "\x08\x07"))[9]; !r.GetVerdict().GetAllowed() {
					t.Errorf("the next request gets %v", r)
				}
			})
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestEnding: a stream ends with the server; what was decided is answered, and
// nothing that was not answered was charged.
func TestEnding(t *testing.T) {
	eachWay(t, func(t *testing.T, o Options) {
		b := newBackend(t)
		ending := make(chan struct{})
		o.Ending = ending
		s := openStream(t, serve(t, b, o))
		idle := openStream(t, serve(t, b, o))
		hold := make(chan struct{})
		b.with(func(b *backend) { b.hold = hold })
		send(t, s, numbered(1, checking(by("wide", "k"))))
		b.waitFor(t, 1)
		close(ending)
		close(hold)
		if r := results(t, s, 1)[1]; !r.GetVerdict().GetAllowed() {
			t.Errorf("what was being decided gets %v", r)
		}
		for _, s := range []checkStream{s, idle} {
			_, err := s.Recv()
			if code, reason, _ := problem(t, err); code != codes.Unavailable || reason != ReasonStreamEnded {
				t.Errorf("the stream ends with %v", err)
			}
		}
		if got, err := b.Ledger.Take(t.Context(), headgate.OpPeek, []headgate.Check{must(b.set.Check("wide", "k", 1))}, nil); err != nil || got[0].Remaining != 999 {
			t.Errorf("%v, %v; want 1 unit charged", got, err)
		}
	})
}

// TestCallerGone: a caller that cancels leaves nothing behind, which goleak sees.
func TestCallerGone(t *testing.T) {
	eachWay(t, func(t *testing.T, o Options) {
		b := newBackend(t)
		b.with(func(b *backend) { b.hold = make(chan struct{}) })
		api := serve(t, b, o)
		ctx, cancel := context.WithCancel(t.Context())
		s, err := api.CheckStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		all := make([]*headgatev1.CheckRequest, MaxTogether)
		for i := range all {
			all[i] = checking(by("wide", "k"))
		}
		send(t, s, numbered(1, all...))
		b.waitFor(t, 1)
		cancel()
		if _, err := s.Recv(); status.Code(err) != codes.Canceled {
			t.Errorf("got %v", err)
		}
	})
}

// TestNobodyReads: a caller that sends and does not read holds up its own stream,
// and neither the server's memory nor its end.
func TestNobodyReads(t *testing.T) {
	eachWay(t, func(t *testing.T, o Options) {
		b := newBackend(t)
		service := New(b.decider(), o)
		api := headgatev1.NewHeadgateClient(connect(t, service.Register))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s, err := api.CheckStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		all := make([]*headgatev1.CheckRequest, MaxTogether)
		for i := range all {
			all[i] = checking(by("wide", "k"))
		}
		sent := make(chan int)
		go func() {
			n := 0
			for s.Send(numbered(1, all...)) == nil {
				n++
			}
			sent <- n
		}()
		// It ends up standing still: no more calls begin, and it holds no permits, which
		// other streams need.
		last, now := -1, 0
		for deadline := time.Now().Add(2 * time.Minute); last != now || len(service.permits) != 0; {
			if time.Now().After(deadline) {
				t.Fatalf("%d calls have begun, and it holds %d permits", now, len(service.permits))
			}
			time.Sleep(50 * time.Millisecond)
			last, now = now, b.calls()
		}
		cancel()
		if n := <-sent; n > 1000 {
			t.Errorf("%d messages went out with nobody reading the answers", n)
		}
	})
}

// TestDefect: a panic is the handler's, where the server's interceptors see it, in
// whatever goroutine it happened.
func TestDefect(t *testing.T) {
	eachWay(t, func(t *testing.T, o Options) {
		service := New(nil, o) // no decider
		l := connectWith(t, []grpc.ServerOption{
			grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
				defer func() {
					if p := recover(); p != nil {
						err = status.Error(codes.Internal, "a defect")
					}
				}()
				return next(srv, s)
			}),
			grpc.UnaryInterceptor(func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
				defer func() {
					if p := recover(); p != nil {
						err = status.Error(codes.Internal, "a defect")
					}
				}()
				return next(ctx, r)
			}),
		}, service.Register)
		api := headgatev1.NewHeadgateClient(l)
		s := openStream(t, api)
		send(t, s, numbered(1, checking(by("wide", "k")), checking(by("wide", "k"))))
		if _, err := s.Recv(); status.Code(err) != codes.Internal {
			t.Errorf("a stream: %v", err)
		}
		_, err := api.CheckBatch(t.Context(), &headgatev1.CheckBatchRequest{Requests: []*headgatev1.CheckRequest{checking(by("wide", "k")), checking(by("wide", "k"))}})
		if status.Code(err) != codes.Internal {
			t.Errorf("a batch: %v", err)
		}
	})
}

func TestBatch(t *testing.T) {
	eachWay(t, func(t *testing.T, o Options) {
		api := serve(t, newBackend(t), o)
		all := []*headgatev1.CheckRequest{checking(by("direct", "a")), checking(by("nobody", "a")), {Entries: map[string]string{"route": "GET /wp-"}}}
		m, err := api.CheckBatch(t.Context(), &headgatev1.CheckBatchRequest{Requests: all})
		if err != nil || len(m.GetResults()) != 3 {
			t.Fatalf("%v, %v", m, err)
		}
		if r := m.GetResults()[0]; !r.GetVerdict().GetAllowed() || r.GetError() != nil {
			t.Errorf("the first: %v", r)
		}
		if r := m.GetResults()[1]; r.GetVerdict() != nil || codes.Code(r.GetError().GetCode()) != codes.NotFound {
			t.Errorf("a rule that is not there: %v", r)
		}
		if r := m.GetResults()[2]; r.GetVerdict().GetDeniedBy().GetList() != "scanners" {
			t.Errorf("the deny list: %v", r)
		}
		for _, n := range []int{0, MaxTogether + 1} {
			_, err := api.CheckBatch(t.Context(), &headgatev1.CheckBatchRequest{Requests: make([]*headgatev1.CheckRequest, n)})
			if code, _, fields := problem(t, err); code != codes.InvalidArgument || fields["requests"] == "" {
				t.Errorf("%d requests: %v", n, err)
			}
		}
	})
}

// FuzzDecode holds the decoder written by hand against the generated one.
func FuzzDecode(f *testing.F) {
	for _, r := range everyKind() {
		f.Add(must(proto.Marshal(r)))
	}
	f.Add([]byte("\x0a\x04\x0a\x01a\x12\x0b\x0c\x0a\x02\x10\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var got, want decide.Request
		m := new(headgatev1.CheckRequest)
		generated, byHand := proto.Unmarshal(text, m), decodeRequest(&got, string(text))
		if generated != nil || byHand != nil {
			// Where they may differ: what is no longer of use.
			if generated == nil && byHand != nil {
				t.Fatalf("%q: by hand %v, generated none", text, byHand)
			}
			return
		}
		read(&want, m.GetEntries(), m.GetChecks(), m.Cost, m.GetUsage())
		setTerms(&want, m.GetId(), m.GetLifetimeMs())
		if len(want.Descriptor)+want.Beyond != len(got.Descriptor)+got.Beyond && len(got.Descriptor) < 32 {
			t.Fatalf("%q: %d entries, want %d", text, len(got.Descriptor), len(want.Descriptor))
		}
		if want.Beyond == 0 {
			for _, e := range want.Descriptor {
				if v, _ := got.Descriptor.Get(e.Name); v != e.Value {
					t.Fatalf("%q: entry %q is %q, want %q", text, e.Name, v, e.Value)
				}
			}
		}
		if (got.Usage == nil) != (want.Usage == nil) || got.Usage != nil && *got.Usage != *want.Usage {
			t.Fatalf("%q: usage %+v, want %+v", text, got.Usage, want.Usage)
		}
		got.Usage, want.Usage = nil, nil
		got.Descriptor, want.Descriptor, got.Beyond, want.Beyond = nil, nil, 0, 0
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Fatalf("%q:\ngot  %+v\nwant %+v", text, got, want)
		}
	})
}

// TestTooMuchHeld: streams whose messages are beyond the bound together end, the others are
// answered, and there is room again afterwards.
func TestTooMuchHeld(t *testing.T) {
	const size = 1<<20 - 4096
	large := func() *headgatev1.CheckStreamRequest {
		m := numbered(1, checking(by("wide", "k")))
		padding := protowire.AppendTag(nil, 1000, protowire.BytesType)
		m.ProtoReflect().SetUnknown(protowire.AppendBytes(padding, make([]byte, size)))
		return m
	}
	b := newBackend(t)
	hold := make(chan struct{})
	b.with(func(b *backend) { b.hold = hold })
	api := serve(t, b, Options{})
	var waiting []checkStream
	for len(waiting) <= MaxHeld/size {
		s := openStream(t, api)
		send(t, s, large())
		waiting = append(waiting, s)
	}
	refused, answered := 0, 0
	ended := make(chan error, len(waiting))
	for _, s := range waiting {
		go func() {
			_, err := s.Recv()
			ended <- err
		}()
	}
	if code, reason, _ := problem(t, <-ended); code != codes.ResourceExhausted || reason != ReasonHeld {
		t.Errorf("one too many ends with %v %v", code, reason)
	}
	refused++
	close(hold)
	for range len(waiting) - refused {
		if err := <-ended; err == nil {
			answered++
		}
	}
	if want := MaxHeld / size; answered != want {
		t.Errorf("%d streams are answered, want %d", answered, want)
	}
	s := openStream(t, api)
	send(t, s, large())
	results(t, s, 1)
}
