package grpcapi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/race"
)

func serveStore(t testing.TB, b *backend, o StoreOptions) headgatev1.StoreClient {
	t.Helper()
	return headgatev1.NewStoreClient(connect(t, NewStore(b.decider(), o).Register))
}

// perHour is a rule of the caller's own.
func perHour(name string, n int64) *headgatev1.Rule {
	return &headgatev1.Rule{Name: name, Limits: []*headgatev1.Limit{{Count: n, PeriodUs: time.Hour.Microseconds()}}}
}

func taking(checks ...*headgatev1.StoreCheck) *headgatev1.TakeRequest {
	return &headgatev1.TakeRequest{Checks: checks}
}

func TestStoreTakes(t *testing.T) {
	api := serveStore(t, newBackend(t), StoreOptions{})
	key := []byte("\xff\x00 any bytes")
	want := func(r *headgatev1.TakeRequest, decisions ...*headgatev1.StoreDecision) {
		t.Helper()
		got, err := api.Take(t.Context(), r)
		if err != nil || !proto.Equal(got, &headgatev1.TakeResponse{Decisions: decisions}) {
			t.Errorf("%v: got %v, %v", r, got, err)
		}
	}
	rule := perHour("mine", 10)
	hour := time.Hour.Microseconds()
	want(taking(&headgatev1.StoreCheck{Rule: rule, Key: key, Cost: 9}), &headgatev1.StoreDecision{Allowed: true, Remaining: 1, ResetAfterUs: hour / 10 * 9, At: epoch})
	want(taking(&headgatev1.StoreCheck{Rule: rule, Key: key, Cost: 2}), &headgatev1.StoreDecision{Remaining: 1, RetryAfterUs: hour / 10, ResetAfterUs: hour / 10 * 9, At: epoch})
	want(taking(&headgatev1.StoreCheck{Rule: rule, Key: key, Cost: 11, Shadow: true}), &headgatev1.StoreDecision{Remaining: 1, RetryAfterUs: -1, ResetAfterUs: hour / 10 * 9, At: epoch})
	refund := taking(&headgatev1.StoreCheck{Rule: rule, Key: key, Cost: 9, At: epoch})
	refund.Op = headgatev1.Op_OP_REFUND
	want(refund, &headgatev1.StoreDecision{Allowed: true, Remaining: 10, At: epoch})
	reset := taking(&headgatev1.StoreCheck{Rule: rule, Key: key})
	reset.Op = headgatev1.Op_OP_RESET
	want(reset)
}

// TestStoreStreamSaysWhatCallsSay: one by one, both get the same answers, those to
// mistakes among them.
func TestStoreStreamSaysWhatCallsSay(t *testing.T) {
	rule := perHour("mine", 10)
	calendar := &headgatev1.Rule{Name: "month", Limits: []*headgatev1.Limit{{
		Algorithm: headgatev1.Algorithm_ALGORITHM_FIXED_WINDOW, Count: 5, Align: headgatev1.Alignment_ALIGNMENT_MONTH, TimeZone: "Europe/Berlin",
	}, {Count: 1, PeriodUs: 1}}}
	penalty := &headgatev1.Rule{Name: "login", Limits: []*headgatev1.Limit{
		{Algorithm: headgatev1.Algorithm_ALGORITHM_SLIDING_WINDOW, Count: 5, PeriodUs: 1_000_000},
		{Algorithm: headgatev1.Algorithm_ALGORITHM_PENALTY, Count: 3, PeriodUs: 60_000_000, BlockMs: 1000, MaxBlockMs: 60_000},
	}}
	many := make([]*headgatev1.StoreCheck, headgate.MaxChecks+1)
	for i := range many {
		many[i] = &headgatev1.StoreCheck{Rule: rule, Key: fmt.Append(nil, i)}
	}
	leaky := &headgatev1.Rule{Name: "paced", Limits: []*headgatev1.Limit{{Algorithm: headgatev1.Algorithm_ALGORITHM_LEAKY_BUCKET, Count: 10, PeriodUs: 1_000_000, Burst: 5}}}
	requests := []*headgatev1.TakeRequest{
		taking(&headgatev1.StoreCheck{Rule: rule, Key: []byte("a"), Cost: 3, GiveBack: true, OnError: headgatev1.OnError_ON_ERROR_LOCAL, Factor: 2}, &headgatev1.StoreCheck{Rule: calendar, Key: []byte("\xff")}),
		taking(&headgatev1.StoreCheck{Rule: penalty, Key: []byte("a"), Shadow: true}),
		taking(&headgatev1.StoreCheck{Rule: leaky, Cost: 3}),
		taking(&headgatev1.StoreCheck{Rule: leaky, Cost: 2}),
		{Op: headgatev1.Op_OP_PEEK, Checks: many[:headgate.MaxChecks]},
		{Op: headgatev1.Op_OP_REFUND, Checks: []*headgatev1.StoreCheck{{Rule: rule, Key: []byte("a"), At: epoch}}},
		{Op: headgatev1.Op_OP_RESET, Checks: []*headgatev1.StoreCheck{{Rule: rule, Key: []byte("a")}}},
		{Op: 17, Checks: many[:1]},
		{},
		taking(many...),
		taking(&headgatev1.StoreCheck{Key: []byte("a")}),
		taking(&headgatev1.StoreCheck{Rule: &headgatev1.Rule{}}, &headgatev1.StoreCheck{Rule: perHour("a name", 0), Cost: -1, At: -1, Factor: -1, OnError: 99}),
		taking(&headgatev1.StoreCheck{Rule: rule, Cost: -1}, &headgatev1.StoreCheck{Rule: rule, Key: []byte(strings.Repeat("k", 2000))}),
		taking(&headgatev1.StoreCheck{Rule: rule}, &headgatev1.StoreCheck{Rule: rule}),
		taking(&headgatev1.StoreCheck{Rule: &headgatev1.Rule{Name: "r", Limits: []*headgatev1.Limit{{Count: 1, PeriodUs: 1 << 62}, {Algorithm: 300}, {BlockMs: -1}, {Count: 1, TimeZone: "../etc/passwd"}, {Count: 1, TimeZone: "Local"}}}}),
	}
	eachWay(t, func(t *testing.T, o Options) {
		calls := serveStore(t, newBackend(t), StoreOptions{})
		streamed, err := serveStore(t, newBackend(t), StoreOptions{Options: o}).TakeStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range requests {
			want, err := calls.Take(t.Context(), r)
			if (i >= 7) != (status.Code(err) == codes.InvalidArgument) {
				t.Errorf("request %d: %v", i, err)
			}
			if err := streamed.Send(&headgatev1.TakeStreamRequest{Takes: []*headgatev1.NumberedTake{{Number: uint64(i), Request: r}}}); err != nil {
				t.Fatal(err)
			}
			m, received := streamed.Recv()
			if received != nil || len(m.GetResults()) != 1 {
				t.Fatalf("%v, %v", m, received)
			}
			got := m.GetResults()[0]
			if got.GetNumber() != uint64(i) || !proto.Equal(got.GetResponse(), want) {
				t.Errorf("request %d: got %v, want %v", i, got, want)
			}
			if err == nil != (got.GetError() == nil) || err != nil && !proto.Equal(got.GetError(), status.Convert(err).Proto()) {
				t.Errorf("request %d: got error %v, want %v", i, got.GetError(), err)
			}
		}
	})
}

func TestStoreRemembers(t *testing.T) {
	api := serveStore(t, newBackend(t), StoreOptions{})
	checks := []*headgatev1.StoreCheck{{Rule: perHour("mine", 10), Key: []byte("k"), Cost: 4, GiveBack: true, Factor: 2}}
	for range 2 {
		m, err := api.TakeOnce(t.Context(), &headgatev1.TakeOnceRequest{Terms: &headgatev1.Terms{Id: []byte("\xffonce")}, Checks: checks})
		if err != nil || m.GetDecisions()[0].GetRemaining() != 6 {
			t.Fatalf("%v, %v", m, err)
		}
	}
	made, err := api.TakeReserve(t.Context(), &headgatev1.TakeReserveRequest{Terms: &headgatev1.Terms{Id: []byte("held"), LifetimeMs: 5000}, Checks: checks})
	if err != nil || made.GetDecisions()[0].GetRemaining() != 2 || made.GetReservation().GetExpires() != epoch+5_000_000 {
		t.Fatalf("%v, %v", made, err)
	}
	recalled, err := api.Recall(t.Context(), &headgatev1.RecallRequest{Id: made.GetReservation().GetId()})
	if err != nil || !proto.Equal(recalled, made.GetReservation()) {
		t.Errorf("recalled %v, %v; want %v", recalled, err, made.GetReservation())
	}
	settled, err := api.TakeSettle(t.Context(), &headgatev1.TakeSettleRequest{Reservation: recalled, Units: []int64{1}})
	if err != nil || settled.GetDecisions()[0].GetRemaining() != 5 {
		t.Errorf("settled: %v, %v", settled, err)
	}
	denied, err := api.TakeReserve(t.Context(), &headgatev1.TakeReserveRequest{Checks: []*headgatev1.StoreCheck{{Rule: perHour("mine", 10), Key: []byte("k"), Cost: 6}}})
	if err != nil || len(denied.GetReservation().GetId()) != 0 || denied.GetDecisions()[0].GetAllowed() {
		t.Errorf("denied: %v, %v", denied, err)
	}
	long := []byte(strings.Repeat("i", 257))
	for name, call := range map[string]func() error{
		"terms.id": func() error {
			_, err := api.TakeOnce(t.Context(), &headgatev1.TakeOnceRequest{Checks: checks})
			return err
		},
		"terms.lifetime_ms": func() error {
			_, err := api.TakeReserve(t.Context(), &headgatev1.TakeReserveRequest{Terms: &headgatev1.Terms{Id: long, LifetimeMs: 1 << 40}, Checks: checks})
			return err
		},
		"checks": func() error {
			_, err := api.TakeReserve(t.Context(), &headgatev1.TakeReserveRequest{})
			return err
		},
		"id": func() error {
			_, err := api.Recall(t.Context(), &headgatev1.RecallRequest{})
			return err
		},
		"units": func() error {
			_, err := api.TakeSettle(t.Context(), &headgatev1.TakeSettleRequest{Reservation: recalled, Units: []int64{1, 2}})
			return err
		},
	} {
		if code, _, fields := problem(t, call()); code != codes.InvalidArgument || fields[name] == "" {
			t.Errorf("%s: %v %v", name, code, fields)
		}
	}
	_, err = api.Recall(t.Context(), &headgatev1.RecallRequest{Id: []byte("nobody's")})
	if code, reason, _ := problem(t, err); code != codes.NotFound || reason != ReasonNoReservation {
		t.Errorf("no reservation: %v", err)
	}
}

func TestStoreToken(t *testing.T) {
	api := serveStore(t, newBackend(t), StoreOptions{Token: "the-token-of-the-store"})
	for text, ok := range map[string]bool{
		"": false, "Bearer": false, "Bearer ": false, "Bearer the-token": false, "Basic the-token-of-the-store": false,
		"the-token-of-the-store": false, "Bearer the-token-of-the-store": true, "bearer the-token-of-the-store": true,
	} {
		ctx := t.Context()
		if text != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", text)
		}
		check := &headgatev1.StoreCheck{Rule: perHour("mine", 100)}
		_, err := api.Take(ctx, taking(check))
		errs := []error{err}
		_, err = api.TakeOnce(ctx, &headgatev1.TakeOnceRequest{Terms: &headgatev1.Terms{Id: []byte("i")}, Checks: []*headgatev1.StoreCheck{check}})
		errs = append(errs, err)
		made, err := api.TakeReserve(ctx, &headgatev1.TakeReserveRequest{Checks: []*headgatev1.StoreCheck{check}})
		errs = append(errs, err)
		_, err = api.Recall(ctx, &headgatev1.RecallRequest{Id: made.GetReservation().GetId()})
		errs = append(errs, err)
		_, err = api.TakeSettle(ctx, &headgatev1.TakeSettleRequest{Reservation: made.GetReservation(), Units: []int64{1}})
		errs = append(errs, err)
		s, err := api.TakeStream(ctx)
		if err == nil {
			if err = s.CloseSend(); err == nil {
				if _, err = s.Recv(); ok {
					err = nil // io.EOF
				}
			}
		}
		for i, err := range append(errs, err) {
			if code, reason, _ := problem(t, err); ok && err != nil || !ok && (code != codes.Unauthenticated || reason != ReasonToken) {
				t.Errorf("%q, call %d: %v", text, i, err)
			}
		}
	}
}

// TestRuleCache: rules are made once, and their number is bounded.
func TestRuleCache(t *testing.T) {
	var c ruleCache
	text := func(i int) string { return string(must(proto.Marshal(perHour(fmt.Sprint("r", i), 10)))) }
	first, err := c.of(text(0))
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := c.of(text(0)); again != first {
		t.Error("the same text makes another rule")
	}
	for i := range 2 * maxCachedRules {
		if r, err := c.of(text(i)); err != nil || r.Name() != fmt.Sprint("r", i) {
			t.Fatalf("%v, %v", r, err)
		}
		if len(c.rules) > maxCachedRules {
			t.Fatalf("%d rules are kept", len(c.rules))
		}
	}
	long := perHour("long", 1)
	for range headgate.MaxLimits - 1 {
		long.Limits = append(long.Limits, &headgatev1.Limit{
			Algorithm: headgatev1.Algorithm_ALGORITHM_FIXED_WINDOW, Count: 1, Align: headgatev1.Alignment_ALIGNMENT_YEAR, TimeZone: "America/Argentina/ComodRivadavia",
		})
	}
	if _, err := c.of(string(must(proto.Marshal(long)))); err != nil {
		t.Errorf("the largest rule: %v", err)
	}
	before := len(c.rules)
	for i := range 3 {
		padded := text(i) + strings.Repeat("\x1a\x7f"+strings.Repeat("x", 127), 100) // fields that nobody knows
		if _, err := c.of(padded); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.rules) != before {
		t.Error("texts of any length are kept")
	}
}

// TestStreamAllocations: a check over a stream leaves little to collect.
func TestStreamAllocations(t *testing.T) {
	if race.Enabled {
		return // The race detector allocates itself.
	}
	b := newBackend(t)
	s, store := New(b.decider(), Options{}), NewStore(b.decider(), StoreOptions{})
	for name, c := range map[string]struct {
		most   float64
		answer answerer
		text   string
	}{
		"by rule":    {0, s.answer, string(must(proto.Marshal(checking(by("wide", "k")))))},
		"by entries": {1, s.answer, string(must(proto.Marshal(&headgatev1.CheckRequest{Entries: map[string]string{"route": "POST /v1/token", "api_key": "k1"}})))},
		"by content": {0, store.answer, string(must(proto.Marshal(taking(&headgatev1.StoreCheck{Rule: perHour("mine", 10), Key: []byte("k")}))))},
	} {
		out := make([]byte, 0, 1024)
		if got := testing.AllocsPerRun(200, func() {
			if _, err := c.answer(t.Context(), c.text, out); err != nil {
				t.Fatal(err)
			}
		}); got > c.most {
			t.Errorf("%s: %v allocations, want at most %v", name, got, c.most)
		}
	}
}
