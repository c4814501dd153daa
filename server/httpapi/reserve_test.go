package httpapi

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// TestReserveAndSettle goes the whole way of a reservation on a real store, each
// call twice, as a client does that lost the answer.
func TestReserveAndSettle(t *testing.T) {
	clock := storetest.NewClock(storetest.Epoch)
	set, err := policy.New([]policy.Rule{
		{Limits: headgate.MustRule("tokens", headgate.Sliding(100, time.Hour)), Reservation: policy.Reservation{For: 10 * time.Second, GiveBack: true}},
		{Limits: headgate.MustRule("cents", headgate.Sliding(1000, time.Hour)), Cost: 2},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := New(over(inMemory{memory.New(memory.Clock(clock.Now)), set}), Options{})
	type answer struct {
		Allowed     bool
		Decisions   []struct{ Remaining int64 }
		Reservation string
		Expires     int64 `json:"expires_in_ms"`
		Detail      string
		Errors      []struct{ Detail string }
	}
	ask := func(path, body string, status int, remaining ...int64) answer {
		t.Helper()
		var a answer
		w := post(h, path, body)
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		var left []int64
		for _, d := range a.Decisions {
			left = append(left, d.Remaining)
		}
		if w.Code != status || !slices.Equal(left, remaining) {
			t.Errorf("%s %s: %d %s, want %d with %d remaining", path, body, w.Code, w.Body, status, remaining)
		}
		return a
	}
	const request = `{"descriptor":{},"cost":40,"id":"a"}`
	a := ask("/v1/reserve", request, 200, 60, 920)
	if a.Reservation != "a" || a.Expires != 10_000 {
		t.Errorf("the reservation is %q for %d ms", a.Reservation, a.Expires)
	}
	ask("/v1/reserve", request, 200, 60, 920)
	ask("/v1/reserve", `{"descriptor":{},"cost":41,"id":"a"}`, 409)
	ask("/v1/settle", `{"reservation":"a","cost":25}`, 200, 75, 950)
	ask("/v1/settle", `{"reservation":"a","cost":25}`, 200, 75, 950)
	ask("/v1/settle", `{"reservation":{"id":"a"},"cost":25}`, 400)
	ask("/v1/settle", `{"reservation":"","cost":25}`, 422)
	ask("/v1/settle", `{"reservation":"a","cost":26}`, 409)
	if a := ask("/v1/settle", `{"reservation":"a","cost":-1}`, 422); len(a.Errors) != 1 || a.Errors[0].Detail != "is -1, must be 0 to 9007199254740991" {
		t.Errorf("a cost below zero: %+v", a.Errors)
	}
	ask("/v1/peek", `{"descriptor":{}}`, 200, 75, 950)

	// What is missing is charged whether it fits or not.
	ask("/v1/reserve", `{"descriptor":{},"cost":70,"id":"b"}`, 200, 5, 810)
	ask("/v1/settle", `{"reservation":"b","cost":80}`, 200, 0, 790)
	ask("/v1/reserve", `{"descriptor":{}}`, 200, 0, 790)
	ask("/v1/reset", `{"descriptor":{}}`, 200)

	id := ask("/v1/reserve", `{"descriptor":{},"cost":10}`, 200, 90, 980).Reservation
	ask("/v1/cancel", `{"reservation":"`+id+`"}`, 200, 100, 1000)
	ask("/v1/cancel", `{"reservation":"`+id+`"}`, 200, 100, 1000)

	// One rule gives back what is abandoned, the other keeps it.
	id = ask("/v1/reserve", `{"descriptor":{},"cost":10}`, 200, 90, 980).Reservation
	clock.Add(10 * time.Second)
	ask("/v1/peek", `{"descriptor":{}}`, 200, 100, 980)
	if a := ask("/v1/settle", `{"reservation":"`+id+`","cost":1}`, 404); !strings.Contains(a.Detail, "expired") {
		t.Errorf("the answer is %q", a.Detail)
	}

	// A check with an id is charged once.
	ask("/v1/check", `{"descriptor":{},"id":"c","lifetime_ms":1000}`, 200, 99, 978)
	ask("/v1/check", `{"descriptor":{},"id":"c","lifetime_ms":1000}`, 200, 99, 978)
	clock.Add(time.Second)
	ask("/v1/check", `{"descriptor":{},"id":"c","lifetime_ms":1000}`, 200, 98, 976)
}

// TestSettleByOutcome: rules that charge by the outcome go by the status.
func TestSettleByOutcome(t *testing.T) {
	set, err := policy.New([]policy.Rule{
		{Limits: headgate.MustRule("work", headgate.Sliding(10, time.Hour)), GiveBackOn: policy.Statuses{{First: 304, Last: 304}, {First: 500, Last: 599}}},
		{Limits: headgate.MustRule("guesses", headgate.Sliding(10, time.Hour)), ChargeOn: policy.Statuses{{First: 401, Last: 401}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ status, want string }{
		{"200", `9 10`}, {"304", `10 10`}, {"503", `10 10`}, {"401", `9 9`},
	} {
		h := New(over(inMemory{memory.New(), set}), Options{})
		post(h, "/v1/reserve", `{"descriptor":{},"id":"a"}`)
		w := post(h, "/v1/settle", `{"reservation":"a","status":`+c.status+`}`)
		var a struct {
			Decisions []struct{ Remaining json.Number }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || len(a.Decisions) != 2 {
			t.Fatalf("status %s: %s", c.status, w.Body)
		}
		if got := a.Decisions[0].Remaining.String() + " " + a.Decisions[1].Remaining.String(); got != c.want {
			t.Errorf("status %s leaves %s, want %s", c.status, got, c.want)
		}
	}
}

// TestOutcome: with outcome=true, a check is reserved where a rule charges by the outcome, and is a
// plain one elsewhere.
func TestOutcome(t *testing.T) {
	failed := policy.Statuses{{First: 401, Last: 403}}
	set, err := policy.New([]policy.Rule{
		{Limits: headgate.MustRule("login", headgate.Sliding(2, time.Hour)), Match: []policy.Condition{policy.Equal("route", "POST /login")}, ChargeOn: failed},
		{Limits: headgate.MustRule("all", headgate.Sliding(9, time.Hour))},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := New(over(inMemory{memory.New(), set}), Options{})
	var a struct {
		Reservation string
		Decisions   []struct{ Remaining int64 }
	}
	ask := func(path, body string, status int, reserved bool) {
		t.Helper()
		a.Reservation, a.Decisions = "", nil
		w := post(h, path, body)
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != status || (a.Reservation != "") != reserved {
			t.Fatalf("%s %s: %d %s, %v; want %d, reserved %v", path, body, w.Code, w.Body, err, status, reserved)
		}
	}
	const login, other = `{"descriptor":{"route":"POST /login"}}`, `{"descriptor":{"route":"GET /"}}`
	ask("/v1/check?outcome=true", other, 200, false)
	for range 5 { // A login that succeeds is not charged by the rule, and is by the other one.
		ask("/v1/check?outcome=true&status=true", login, 200, true)
		ask("/v1/settle", `{"reservation":"`+a.Reservation+`","status":200}`, 200, false)
		if a.Decisions[0].Remaining != 2 {
			t.Fatalf("%+v", a)
		}
	}
	for range 2 {
		ask("/v1/check?outcome=true", login, 200, true)
		ask("/v1/settle", `{"reservation":"`+a.Reservation+`","status":401}`, 200, false)
	}
	ask("/v1/check?outcome=true&status=true", login, 429, false)
	if w := post(h, "/v1/peek?outcome=true", login); w.Code != 400 {
		t.Errorf("a peek with it is answered with %d", w.Code)
	}
}

// A call to a language model is reserved at what it may use, and settled at what it has used: the
// rules that count it take their own part, by the prices of the model.
func TestUsage(t *testing.T) {
	t.Parallel()
	set, err := policy.New([]policy.Rule{
		{Limits: headgate.MustRule("calls", headgate.Sliding(10, time.Hour))},
		{Limits: headgate.MustRule("tokens", headgate.Sliding(1000, time.Hour)), Counts: models.Tokens},
		{Limits: headgate.MustRule("money", headgate.Sliding(1000, time.Hour)), Counts: models.Money},
	}, policy.Models(models.Model{Name: "m*", Priced: true, Input: 500_000, CachedInput: 100_000, Output: 1_000_000}))
	if err != nil {
		t.Fatal(err)
	}
	h := New(over(inMemory{memory.New(), set}), Options{})
	for _, tt := range []struct {
		path, body string
		status     int
		want       string // in the answer
		remaining  []int64
	}{
		{"/v1/reserve", `{"descriptor":{"model":"m1"},"usage":{"input_tokens":100,"output_tokens":500},"id":"a"}`, 200, "", []int64{9, 400, 450}},
		{"/v1/check", `{"descriptor":{"model":"m1"},"usage":{"input_tokens":1,"output_tokens":400}}`, 200, `"allowed":false`, []int64{9, 400, 450}},
		{"/v1/settle", `{"reservation":"a","usage":{"model":"m1","input_tokens":90,"cached_input_tokens":40,"output_tokens":10}}`, 200, "", []int64{9, 900, 961}},
		{"/v1/check", `{"descriptor":{}}`, 200, "", []int64{8}},
		{"/v1/check", `{"descriptor":{},"usage":{"model":"other","input_tokens":1}}`, 422, `the model \"other\" has no price`, nil},
		{"/v1/check", `{"descriptor":{},"usage":{"input_tokens":-1,"output":1,"model":"m","model":"n"}}`, 400, "is given twice", nil},
		{"/v1/check", `{"descriptor":{},"usage":{"model":"m","input_tokens":1,"cached_input_tokens":2}}`, 422, "is 1, must have the 2 from or for the cache among it", nil},
		{"/v1/check", `{"checks":[{"rule":"tokens","key":""}],"usage":{}}`, 422, "goes with a descriptor", nil},
		{"/v1/check", `{"checks":[{"rule":"tokens","key":"","cost":900}]}`, 200, "", []int64{0}},
	} {
		w := post(h, tt.path, tt.body)
		var a struct {
			Decisions []struct{ Remaining int64 }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		var left []int64
		for _, d := range a.Decisions {
			left = append(left, d.Remaining)
		}
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) || !slices.Equal(left, tt.remaining) {
			t.Errorf("%s %s: %d %s, want %d with %q and %d remaining", tt.path, tt.body, w.Code, w.Body, tt.status, tt.want, tt.remaining)
		}
	}
}
