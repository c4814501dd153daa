package grpcapi

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/explain"
	"github.com/headgate/headgate/server/decide"
)

func TestCheckByName(t *testing.T) {
	api := serve(t, newBackend(t), Options{})
	for i := range 5 {
		v, err := api.Check(t.Context(), checking(by("auth.createToken", "k1")))
		if err != nil || !v.GetAllowed() || v.GetDecisions()[1].GetRemaining() != int64(4-i) {
			t.Fatalf("check %d: %v, %v", i, v, err)
		}
	}
	v, err := api.Check(t.Context(), checking(by("auth.createToken", "k1")))
	if err != nil {
		t.Fatal(err)
	}
	want := &headgatev1.Verdict{
		DeniedBy:     &headgatev1.DeniedBy{Rule: "auth.createToken", Limit: "5 per 3s"},
		RetryAfterMs: 3000, At: epoch,
		Decisions: []*headgatev1.Decision{
			{Rule: "auth.createToken", Limit: "20 per 1m", Algorithm: "sliding_window", Capacity: 20, PeriodMs: 60_000, Allowed: true, Remaining: 15, ResetAfterMs: 60_000},
			{Rule: "auth.createToken", Limit: "5 per 3s", Algorithm: "sliding_window", Capacity: 5, PeriodMs: 3000, RetryAfterMs: 3000, ResetAfterMs: 3000},
		},
	}
	if !proto.Equal(v, want) {
		t.Errorf("got  %v\nwant %v", v, want)
	}
}

func TestCheckByEntries(t *testing.T) {
	api := serve(t, newBackend(t), Options{})
	check := func(entries map[string]string, cost int64) *headgatev1.Verdict {
		t.Helper()
		r := &headgatev1.CheckRequest{Entries: entries}
		if cost != 0 {
			r.Cost = &cost
		}
		v, err := api.Check(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := check(map[string]string{"route": "GET /"}, 0); !v.GetAllowed() || len(v.GetDecisions()) != 0 || v.GetAt() != 0 {
		t.Errorf("a request that no rule binds: %v", v)
	}
	if v := check(nil, 0); !v.GetAllowed() {
		t.Errorf("a request of which nothing is known: %v", v)
	}
	if v := check(map[string]string{"route": "GET /export/a"}, 2); v.GetDecisions()[0].GetRemaining() != 500_000_000-6 {
		t.Errorf("a cost of 2 times 3: %v", v)
	}
	if v := check(map[string]string{"route": "GET /export/a"}, 0); v.GetDelayMs() != 600 {
		t.Errorf("behind 6 units of 100 ms: %v", v)
	}
	if v := check(map[string]string{"route": "GET /export/a"}, headgate.MaxCount); v.GetAllowed() || v.GetRetryAfterMs() != -1 {
		t.Errorf("a cost of 10⁹ times 3: %v", v)
	}
	if v := check(map[string]string{"route": "GET /wp-admin"}, 0); v.GetAllowed() || v.GetDeniedBy().GetList() != "scanners" || v.GetRetryAfterMs() != -1 {
		t.Errorf("a request on the deny list: %v", v)
	}
	// Both ways reach the same counter, secrets included.
	check(map[string]string{"route": "POST /v1/token", "api_key": "k1"}, 4)
	v, err := api.Peek(t.Context(), &headgatev1.PeekRequest{Checks: []*headgatev1.Check{by("auth.createToken", "k1", 1)}})
	if err != nil || v.GetDecisions()[1].GetRemaining() != 1 {
		t.Errorf("peek: %v, %v", v, err)
	}
}

// TestDecisionsInFull: what only some decisions say.
func TestDecisionsInFull(t *testing.T) {
	api := serve(t, newBackend(t), Options{})
	v, err := api.Check(t.Context(), checking(by("wide", "k", 600), by("watched", "k", 2)))
	if err != nil {
		t.Fatal(err)
	}
	if d := v.GetDecisions()[0]; !d.GetSoft() || d.GetShadow() || d.GetSource() != "" {
		t.Errorf("at 60 %% of a limit that warns at 50 %%: %v", d)
	}
	if d := v.GetDecisions()[1]; !v.GetAllowed() || !d.GetShadow() || d.GetAllowed() || d.GetRetryAfterMs() != -1 {
		t.Errorf("a shadow that never fits: %v", v)
	}
}

func TestPeekRefundReset(t *testing.T) {
	api := serve(t, newBackend(t), Options{})
	remaining := func(v *headgatev1.Verdict, err error) int64 {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v.GetDecisions()[0].GetRemaining()
	}
	checks := []*headgatev1.Check{by("wide", "k", 10)}
	charged, err := api.Check(t.Context(), checking(checks...))
	if n := remaining(charged, err); n != 990 {
		t.Fatalf("%d remain", n)
	}
	for range 2 {
		if n := remaining(api.Peek(t.Context(), &headgatev1.PeekRequest{Checks: checks})); n != 990 {
			t.Errorf("a peek leaves %d", n)
		}
	}
	if n := remaining(api.Refund(t.Context(), &headgatev1.RefundRequest{Checks: []*headgatev1.Check{by("wide", "k", 4)}, At: charged.GetAt()})); n != 994 {
		t.Errorf("a refund leaves %d", n)
	}
	reset, err := api.Reset(t.Context(), &headgatev1.ResetRequest{Checks: checks})
	if err != nil || len(reset.GetRules()) != 1 || reset.GetRules()[0] != "wide" {
		t.Errorf("reset: %v, %v", reset, err)
	}
	if n := remaining(api.Check(t.Context(), checking(checks...))); n != 990 {
		t.Errorf("after the reset %d remain", n)
	}
	reset, err = api.Reset(t.Context(), &headgatev1.ResetRequest{Entries: map[string]string{"route": "GET /export/a"}})
	if err != nil || len(reset.GetRules()) != 1 || reset.GetRules()[0] != "heavy" {
		t.Errorf("reset by entries: %v, %v", reset, err)
	}
}

func TestRepeatedByID(t *testing.T) {
	api := serve(t, newBackend(t), Options{})
	r := checking(by("wide", "k", 10))
	r.Id, r.LifetimeMs = "request-1", 5000
	for range 3 {
		if v, err := api.Check(t.Context(), r); err != nil || v.GetDecisions()[0].GetRemaining() != 990 {
			t.Fatalf("%v, %v", v, err)
		}
	}
	r.Checks = []*headgatev1.Check{by("wide", "other")}
	_, err := api.Check(t.Context(), r)
	if code, reason, _ := problem(t, err); code != codes.Aborted || reason != ReasonConflict {
		t.Errorf("the id of another request: %v", err)
	}
}

func TestReserve(t *testing.T) {
	api := serve(t, newBackend(t), Options{})
	cost := func(n int64) *int64 { return &n }
	reserve := func(checks ...*headgatev1.Check) *headgatev1.ReserveResponse {
		t.Helper()
		r, err := api.Reserve(t.Context(), &headgatev1.ReserveRequest{Checks: checks, LifetimeMs: 30_000})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	want := func(v *headgatev1.Verdict, err error, remaining int64) {
		t.Helper()
		if err != nil || v.GetDecisions()[0].GetRemaining() != remaining {
			t.Errorf("got %v, %v; want %d remaining", v, err, remaining)
		}
	}
	peek := func(rule string) (*headgatev1.Verdict, error) {
		return api.Peek(t.Context(), &headgatev1.PeekRequest{Checks: []*headgatev1.Check{by(rule, "k")}})
	}

	r := reserve(by("wide", "k", 100), by("direct", "k", 2))
	id := r.GetReservation()
	if !r.GetVerdict().GetAllowed() || id == "" || r.GetExpiresInMs() != 30_000 {
		t.Fatalf("got %v", r)
	}
	for range 2 {
		v, err := api.Settle(t.Context(), &headgatev1.SettleRequest{Reservation: id, Cost: cost(1)})
		want(v, err, 999)
	}
	_, err := api.Settle(t.Context(), &headgatev1.SettleRequest{Reservation: id, Cost: cost(2)})
	if code, reason, _ := problem(t, err); code != codes.Aborted || reason != ReasonConflict {
		t.Errorf("settled at another cost: %v", err)
	}

	for range 2 {
		v, err := api.Cancel(t.Context(), &headgatev1.CancelRequest{Reservation: reserve(by("wide", "k", 100)).GetReservation()})
		want(v, err, 999)
	}
	// A rule that charges by the outcome.
	guess := reserve(by("guesses", "k"))
	v, err := api.Settle(t.Context(), &headgatev1.SettleRequest{Reservation: guess.GetReservation(), Status: 200})
	want(v, err, 10)
	guess = reserve(by("guesses", "k"))
	v, err = api.Settle(t.Context(), &headgatev1.SettleRequest{Reservation: guess.GetReservation(), Status: 401})
	want(v, err, 9)
	if ms := must(api.Reserve(t.Context(), &headgatev1.ReserveRequest{Checks: []*headgatev1.Check{by("guesses", "l")}})).GetExpiresInMs(); ms != 7000 {
		t.Errorf("a reservation without a lifetime is for %d ms, want the rule's 7000", ms)
	}

	denied := reserve(by("wide", "k", 1000), by("direct", "k"))
	if denied.GetVerdict().GetAllowed() || denied.GetReservation() != "" {
		t.Errorf("a denied request: %v", denied)
	}
	v, err = peek("direct")
	want(v, err, 1)
	free, err := api.Reserve(t.Context(), &headgatev1.ReserveRequest{Entries: map[string]string{"route": "GET /"}})
	if err != nil || !free.GetVerdict().GetAllowed() || free.GetReservation() != "" {
		t.Errorf("a request that no rule binds: %v, %v", free, err)
	}
	for name, r := range map[string]*headgatev1.SettleRequest{
		"reservation": {Cost: cost(1)},
		"cost":        {Reservation: "x"},
		"status":      {Reservation: "x", Status: 99},
	} {
		_, err := api.Settle(t.Context(), r)
		if code, _, fields := problem(t, err); code != codes.InvalidArgument || fields[name] == "" {
			t.Errorf("%s: %v, %v", name, err, fields)
		}
	}
	_, err = api.Settle(t.Context(), &headgatev1.SettleRequest{Reservation: strings.Repeat("x", 20_000), Cost: cost(-1), Status: -1})
	if code, _, fields := problem(t, err); code != codes.InvalidArgument || len(fields) != 3 {
		t.Errorf("all wrong: %v, %v", err, fields)
	}
	_, err = api.Cancel(t.Context(), &headgatev1.CancelRequest{Reservation: "nobody's"})
	if code, reason, _ := problem(t, err); code != codes.NotFound || reason != ReasonNoReservation {
		t.Errorf("no reservation: %v", err)
	}
	_, err = api.Cancel(t.Context(), &headgatev1.CancelRequest{})
	if code, _, fields := problem(t, err); code != codes.InvalidArgument || fields["reservation"] == "" {
		t.Errorf("no id: %v", err)
	}
}

// TestMistakes: every mistake is named, and nothing is charged.
func TestMistakes(t *testing.T) {
	b := newBackend(t)
	api := serve(t, b, Options{})
	many := make(map[string]string)
	for i := range policy.MaxEntries + 1 {
		many[strings.Repeat("n", i+1)] = "v"
	}
	const long = 9000
	checks := make([]*headgatev1.Check, headgate.MaxChecks+1)
	for i := range checks {
		checks[i] = by("direct", strings.Repeat("k", i+1))
	}
	big := int64(headgate.MaxCount + 1)
	one := int64(1)
	for name, c := range map[string]struct {
		r      *headgatev1.CheckRequest
		code   codes.Code
		fields []string
	}{
		"both": {
			&headgatev1.CheckRequest{Entries: map[string]string{"a": "b"}, Checks: []*headgatev1.Check{by("direct", "k")}},
			codes.InvalidArgument,
			[]string{"checks"},
		},
		"a cost for all": {
			&headgatev1.CheckRequest{Checks: []*headgatev1.Check{by("direct", "k")}, Cost: &one},
			codes.InvalidArgument,
			[]string{"cost"},
		},
		"several":            {checking(by("", "k"), by("direct", "k", 0), by("direct", strings.Repeat("k", long))), codes.InvalidArgument, []string{"checks[0].rule", "checks[1].cost", "checks[2].key"}},
		"unknown":            {checking(by("nobody", "k")), codes.NotFound, []string{"checks[0].rule"}},
		"unknown and wrong":  {checking(by("nobody", "k", -1)), codes.InvalidArgument, []string{"checks[0].rule", "checks[0].cost"}},
		"a repeated check":   {checking(by("direct", "k"), by("direct", "k")), codes.InvalidArgument, []string{"checks"}},
		"too many checks":    {checking(checks...), codes.InvalidArgument, []string{"checks"}},
		"too many entries":   {&headgatev1.CheckRequest{Entries: many}, codes.InvalidArgument, []string{"entries"}},
		"a cost too large":   {&headgatev1.CheckRequest{Cost: &big}, codes.InvalidArgument, []string{"cost"}},
		"a long value":       {&headgatev1.CheckRequest{Entries: map[string]string{"a": strings.Repeat("v", long)}}, codes.InvalidArgument, []string{"entries.a"}},
		"a name of no bytes": {&headgatev1.CheckRequest{Entries: map[string]string{"": "v"}}, codes.InvalidArgument, []string{"entries"}},
		"a long name":        {&headgatev1.CheckRequest{Entries: map[string]string{strings.Repeat("é", 40): "v"}}, codes.InvalidArgument, []string{"entries." + strings.Repeat("é", 32) + "…"}},
		"a long id":          {&headgatev1.CheckRequest{Id: strings.Repeat("i", 257)}, codes.InvalidArgument, []string{"id"}},
		"a long term":        {&headgatev1.CheckRequest{Id: "i", LifetimeMs: 1 << 62}, codes.InvalidArgument, []string{"lifetime_ms"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := api.Check(t.Context(), c.r)
			code, reason, fields := problem(t, err)
			want := ReasonInvalid
			if c.code == codes.NotFound {
				want = ReasonUnknownRule
			}
			if code != c.code || reason != want || len(fields) != len(c.fields) {
				t.Errorf("got %v %s %v", code, reason, fields)
			}
			for _, f := range c.fields {
				if fields[f] == "" {
					t.Errorf("%s is not named: %v", f, fields)
				}
			}
		})
	}
	_, err := api.Refund(t.Context(), &headgatev1.RefundRequest{At: -1})
	if code, _, fields := problem(t, err); code != codes.InvalidArgument || fields["at"] == "" {
		t.Errorf("a refund of before: %v", err)
	}
	if b.began != 0 {
		t.Errorf("the store was asked %d times", b.began)
	}
}

// TestManyMistakes: an answer is bounded, whatever the request.
func TestManyMistakes(t *testing.T) {
	checks := make([]*headgatev1.Check, headgate.MaxChecks)
	for i := range checks {
		checks[i] = by("", "", -1)
	}
	_, err := serve(t, newBackend(t), Options{}).Check(t.Context(), checking(checks...))
	if s := status.Convert(err); s.Code() != codes.InvalidArgument || !strings.Contains(s.Message(), "at least 32 mistakes") {
		t.Errorf("got %v", err)
	}
	if _, _, fields := problem(t, err); len(fields) != decide.MaxFaults {
		t.Errorf("%d fields are named", len(fields))
	}
}

func TestUnavailable(t *testing.T) {
	b := newBackend(t)
	api := serve(t, b, Options{})
	b.with(func(b *backend) { b.err = headgate.ErrUnavailable })
	_, err := api.Check(t.Context(), checking(by("direct", "k")))
	code, reason, _ := problem(t, err)
	if code != codes.Unavailable || reason != ReasonUnavailable {
		t.Errorf("got %v", err)
	}
	for _, d := range status.Convert(err).Details() {
		if retry, ok := d.(*errdetails.RetryInfo); ok && retry.GetRetryDelay().AsDuration() == time.Second {
			return
		}
	}
	t.Errorf("no RetryInfo of a second: %v", status.Convert(err).Details())
}

// TestNoLedger: a store that does not remember requests says so.
func TestNoLedger(t *testing.T) {
	b := newBackend(t)
	only := struct{ headgate.Store }{b}
	d := b.decider()
	api := headgatev1.NewHeadgateClient(connect(t, New(storeOnly{d, only}, Options{}).Register))
	_, err := api.Reserve(t.Context(), &headgatev1.ReserveRequest{Checks: []*headgatev1.Check{by("direct", "k")}})
	if code, reason, _ := problem(t, err); code != codes.Unimplemented || reason != ReasonNoLedger {
		t.Errorf("got %v", err)
	}
}

func TestCallersDeadline(t *testing.T) {
	b := newBackend(t)
	api := serve(t, b, Options{})
	b.with(func(b *backend) { b.hold = make(chan struct{}) })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := api.Check(ctx, checking(by("direct", "k"))); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
}

// TestErrorsOfStores: what they say is not passed on, since it may name addresses.
func TestErrorsOfStores(t *testing.T) {
	err := failed(t.Context(), errors.New("dial redis-7.internal:6379: refused"))
	if strings.Contains(err.Error(), "redis-7") || status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
}

// TestUsage: a call to a language model is reserved, explained and settled by its tokens.
func TestUsage(t *testing.T) {
	api := serve(t, newBackend(t), Options{})
	entries := map[string]string{"route": "POST /v1/messages", "model": "m"}
	left := func(what string, v *headgatev1.Verdict, err error, want int64) {
		t.Helper()
		if err != nil || len(v.GetDecisions()) != 1 || v.GetDecisions()[0].GetRemaining() != want {
			t.Errorf("%s: got %v, %v; want %d remaining", what, v, err, want)
		}
	}
	estimate := &headgatev1.Usage{InputTokens: 100, OutputTokens: 100}
	r, err := api.Reserve(t.Context(), &headgatev1.ReserveRequest{Entries: entries, Usage: estimate})
	left("reserve", r.GetVerdict(), err, 600)
	v, err := api.Peek(t.Context(), &headgatev1.PeekRequest{Entries: entries, Usage: estimate})
	left("peek", v, err, 600)
	v, err = api.Check(t.Context(), &headgatev1.CheckRequest{Entries: entries, Usage: &headgatev1.Usage{InputTokens: 700}})
	if err != nil || v.GetAllowed() {
		t.Errorf("more than is left: %v, %v", v, err)
	}
	v, err = api.Settle(t.Context(), &headgatev1.SettleRequest{
		Reservation: r.GetReservation(), Usage: &headgatev1.Usage{Model: "m", InputTokens: 50, CachedInputTokens: 20, CacheWriteTokens: 10, OutputTokens: 1},
	})
	left("settle", v, err, 1000-20-2-20-3)
	v, err = api.Check(t.Context(), &headgatev1.CheckRequest{Entries: entries, Usage: &headgatev1.Usage{InputTokens: 55}})
	left("check", v, err, 900)
	v, err = api.Refund(t.Context(), &headgatev1.RefundRequest{Entries: entries, Usage: &headgatev1.Usage{InputTokens: 50}})
	left("refund", v, err, 950)
	e, err := api.Explain(t.Context(), &headgatev1.ExplainRequest{Entries: entries, Usage: estimate})
	if err != nil || e.GetRules()[5].GetCost() != 400 {
		t.Errorf("explained as %v, %v", e, err)
	}
	_, err = api.Settle(t.Context(), &headgatev1.SettleRequest{Reservation: r.GetReservation(), Usage: &headgatev1.Usage{InputTokens: 1, CachedInputTokens: 2}})
	if code, _, fields := problem(t, err); code != codes.InvalidArgument || fields["usage.input_tokens"] == "" {
		t.Errorf("more from the cache than there is: %v", err)
	}
}

func TestExplain(t *testing.T) {
	api := serve(t, newBackend(t), Options{})
	e, err := api.Explain(t.Context(), &headgatev1.ExplainRequest{Entries: map[string]string{"route": "POST /v1/token", "api_key": "k1"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(e.GetRules()) != 7 || !e.GetRules()[0].GetBinds() || e.GetRules()[1].GetWhy() == "" || !e.GetVerdict().GetAllowed() {
		t.Errorf("got %v", e)
	}
	if s := e.GetRules()[0].GetLimits()[1].GetState(); s.GetRemaining() != 5 {
		t.Errorf("the state is %v", s)
	}
	for _, entry := range e.GetEntries() {
		if entry.GetName() == "api_key" && (!entry.GetSecret() || strings.Contains(entry.GetValue(), "k1")) {
			t.Errorf("the API key is told: %v", entry)
		}
	}
	if e, err = api.Explain(t.Context(), &headgatev1.ExplainRequest{Entries: map[string]string{"route": "GET /wp-x"}}); err != nil || e.GetDenied().GetName() != "scanners" || e.GetVerdict().GetAllowed() {
		t.Errorf("on the deny list: %v, %v", e, err)
	}
	bad := int64(0)
	if _, err = api.Explain(t.Context(), &headgatev1.ExplainRequest{Cost: &bad}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a cost of 0: %v", err)
	}
}

// TestExplanationIsWhole: the message has every field that the library's has, under
// the same name.
func TestExplanationIsWhole(t *testing.T) {
	var compare func(path string, from reflect.Type, to protoreflect.MessageDescriptor)
	compare = func(path string, from reflect.Type, to protoreflect.MessageDescriptor) {
		for i := range from.NumField() {
			f := from.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				continue
			}
			field := to.Fields().ByName(protoreflect.Name(name))
			if field == nil {
				t.Errorf("%s has no %s", path, name)
				continue
			}
			kind := f.Type
			for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice {
				kind = kind.Elem()
			}
			if kind.Kind() == reflect.Struct {
				compare(path+"."+name, kind, field.Message())
			}
		}
	}
	compare("Explanation", reflect.TypeFor[explain.Explanation](), new(headgatev1.Explanation).ProtoReflect().Descriptor())
}
