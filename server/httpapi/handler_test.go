package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

const (
	forToken = `{"descriptor":{"api_key":"k1","ip":"203.0.113.10","route":"POST /v1/token"},"cost":%d}`
	forUser  = `{"checks":[{"rule":"auth.createToken","key":"user42","cost":%d}]}`
)

func TestAnswers(t *testing.T) {
	one := func(format string) string { return fmt.Sprintf(format, 1) }
	window := func(limit, capacity, period, allowed, remaining, retry, reset string) string {
		return `{"rule":"auth.createToken","limit":"` + limit + `","algorithm":"sliding_window","allowed":` + allowed + `,"capacity":` + capacity + `,"period_ms":` + period +
			`,"remaining":` + remaining + `,"retry_after_ms":` + retry + `,"reset_after_ms":` + reset + `}`
	}
	five := func(allowed, remaining, retry string) string {
		return window("5 per 3s", "5", "3000", allowed, remaining, retry, "3000")
	}
	twenty := func(allowed, remaining, retry string) string {
		return window("20 per 1m", "20", "60000", allowed, remaining, retry, "60000")
	}
	allowed := func(a, b string) string {
		return `{"allowed":true,"retry_after_ms":0,"delay_ms":0,"decisions":[` + twenty("true", a, "0") + "," + five("true", b, "0") + `]}`
	}
	const none = `{"allowed":true,"retry_after_ms":0,"delay_ms":0,"decisions":[]}`
	const deniedMembers = `"allowed":false,"denied_by":{"rule":"auth.createToken","limit":"5 per 3s"},"retry_after_ms":1501,"delay_ms":0,"decisions":[`
	const listed = `"allowed":false,"denied_by":{"list":"scanners"},"retry_after_ms":-1,"delay_ms":0,"decisions":[]}`
	denied := `{` + deniedMembers + twenty("true", "14", "0") + "," + five("false", "0", "1501") + `]}`

	steps := []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v1/peek", one(forToken), 200, allowed("19", "4")},
		{"/v1/check", one(forToken), 200, allowed("19", "4")},
		{"/v1/check", fmt.Sprintf(forToken, 4), 200, allowed("15", "0")},
		{"/v1/check", one(forToken), 200, denied},
		{"/v1/check?status=false", one(forToken), 200, denied},
		{"/v1/peek", one(forToken), 200, denied},
		{"/v1/check?status=true", one(forToken), 429, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"The assigned quota is exceeded","status":429,` +
			`"detail":"Rule \"auth.createToken\" admits 5 per 3s; the request fits in 1.501s.","violated-policies":["auth.createToken per 3s"],` + deniedMembers + twenty("true", "14", "0") + "," + five("false", "0", "1501") + `]}`},
		{"/v1/refund", fmt.Sprintf(forToken, 2), 200, allowed("17", "2")},
		{"/v1/check?status=true", one(forToken), 200, allowed("16", "1")},
		{"/v1/reset", one(forToken), 200, `{"reset":["auth.createToken"]}`},
		{"/v1/check?at=true", one(forToken), 200, strings.Replace(allowed("19", "4"), `"decisions"`, `"at":1763712000000000,"decisions"`, 1)},
		{"/v1/check", fmt.Sprintf(forToken, 6), 200, `{"allowed":false,"denied_by":{"rule":"auth.createToken","limit":"5 per 3s"},"retry_after_ms":-1,"delay_ms":0,"decisions":[` +
			twenty("true", "13", "0") + "," + five("false", "4", "-1") + `]}`},

		// By name; the key of a secret is the same as by descriptor.
		{"/v1/peek", `{"checks":[{"rule":"auth.createToken","key":"k1"}]}`, 200, allowed("18", "3")},
		{"/v1/check", one(forUser), 200, allowed("19", "4")},
		{"/v1/check", `{"checks":[{"rule":"direct\"é","key":"","cost":2}]}`, 200, `{"allowed":true,"retry_after_ms":0,"delay_ms":0,"decisions":[` +
			`{"rule":"direct\"é","limit":"2 per 1s","algorithm":"token_bucket","allowed":true,"capacity":2,"period_ms":1000,"remaining":0,"retry_after_ms":0,"reset_after_ms":1000}]}`},
		// The cost of the rule, a burst, and a delay rounded up.
		{"/v1/check", `{"descriptor":{"route":"GET /export/1"},"cost":2}`, 200, `{"allowed":true,"retry_after_ms":0,"delay_ms":100,"decisions":[` +
			`{"rule":"heavy","limit":"10 per 1s burst 500000000","algorithm":"leaky_bucket","allowed":true,"capacity":500000000,"period_ms":1000,"remaining":499999994,"retry_after_ms":0,"reset_after_ms":1000}]}`},
		// More than any limit holds is denied for good, not refused.
		{"/v1/check", `{"descriptor":{"route":"GET /export/2"},"cost":500000000}`, 200, `{"allowed":false,"denied_by":{"rule":"heavy","limit":"10 per 1s burst 500000000"},"retry_after_ms":-1,"delay_ms":0,"decisions":[` +
			`{"rule":"heavy","limit":"10 per 1s burst 500000000","algorithm":"leaky_bucket","allowed":false,"capacity":500000000,"period_ms":1000,"remaining":499999994,"retry_after_ms":-1,"reset_after_ms":1000}]}`},
		{"/v1/check", `{"checks":[{"rule":"heavy","key":"","cost":1000000000}]}`, 200, `{"allowed":false,"denied_by":{"rule":"heavy","limit":"10 per 1s burst 500000000"},"retry_after_ms":-1,"delay_ms":0,"decisions":[` +
			`{"rule":"heavy","limit":"10 per 1s burst 500000000","algorithm":"leaky_bucket","allowed":false,"capacity":500000000,"period_ms":1000,"remaining":499999994,"retry_after_ms":-1,"reset_after_ms":1000}]}`},

		// The deny list: nothing is asked of the store, nor given back to it.
		{"/v1/check", `{"descriptor":{"route":"GET /wp-login.php"}}`, 200, `{` + listed},
		{"/v1/peek?status=true", `{"descriptor":{"route":"GET /wp-login.php"}}`, 403, `{"title":"Forbidden","status":403,"detail":"the policy's deny list turns the request away",` + listed},
		{"/v1/refund", `{"descriptor":{"route":"GET /wp-login.php"}}`, 200, none},

		{"/v1/check", `{"descriptor":{}}`, 200, none},
		{"/v1/check?at=true&status=true", `{"descriptor":{}}`, 200, none},
		{"/v1/reset", `{"descriptor":{}}`, 200, `{"reset":[]}`},
	}
	h := New(over(newFake(t)), Options{})
	for i, step := range steps {
		w := post(h, step.path, step.body)
		if w.Code != step.status || w.Body.String() != step.want+"\n" {
			t.Errorf("step %d: %s %s:\n%d %s\nwant\n%d %s", i+1, step.path, step.body, w.Code, w.Body, step.status, step.want)
		}
	}
}

// TestRefundAt checks that the time of a refund reaches the store, both ways of
// asking, and is not there unless it is given.
func TestRefundAt(t *testing.T) {
	f := newFake(t)
	h := New(over(f), Options{})
	for body, at := range map[string]int64{
		`{"checks":[{"rule":"heavy","key":""},{"rule":"auth.createToken","key":"k"}],"at":1763712000000000}`: 1763712000000000,
		`{"descriptor":{"route":"POST /v1/token","api_key":"k"},"at":1763712000000000}`:                      1763712000000000,
		`{"descriptor":{"route":"POST /v1/token","api_key":"k"}}`:                                            0,
	} {
		if w := post(h, "/v1/refund", body); w.Code != http.StatusOK || len(f.checks) == 0 {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
		for _, c := range f.checks {
			if int64(c.At) != at {
				t.Errorf("%s: the store got %d", body, c.At)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	long := strings.Repeat("k", 1025)
	tests := []struct {
		name, path, body string
		status           int
		want             string
	}{
		{"not JSON", "/v1/check", `{`, 400, `{"title":"Bad Request","status":400,"detail":"the request has a mistake","errors":[{"field":"body","detail":"the body is not JSON: expected a name in quotes, found the end of the body, at byte 1"}]}`},
		{"unknown rules", "/v1/check", `{"checks":[{"rule":"auth","key":""},{"rule":"heavy","key":""},{"rule":"x","key":""}]}`, 404, `{"title":"Not Found","status":404,"detail":"the request has 2 mistakes","errors":[` +
			`{"field":"checks[0].rule","detail":"there is no rule \"auth\"; there are auth.createToken, heavy, direct\"é; GET /v1/rules lists the rules"},` +
			`{"field":"checks[2].rule","detail":"there is no rule \"x\"; there are auth.createToken, heavy, direct\"é; GET /v1/rules lists the rules"}]}`},
		{"a cost out of range, once", "/v1/check", `{"checks":[{"rule":"heavy","key":"","cost":-1},{"rule":"heavy","key":"x","cost":9007199254740992}]}`, 422, `{"title":"Unprocessable Entity","status":422,"detail":"the request has 3 mistakes","errors":[` +
			`{"field":"checks[0].cost","detail":"is -1, must be 1 to 9007199254740991"},{"field":"checks[1].cost","detail":"is 9007199254740992, must be 1 to 9007199254740991"},` +
			`{"field":"checks[1].key","detail":"the key must be empty: the rule has one counter for all requests"}]}`},
		{"a number beyond all", "/v1/check", `{"descriptor":{},"cost":99999999999999999999}`, 422, `{"title":"Unprocessable Entity","status":422,"detail":"the request has a mistake","errors":[{"field":"cost","detail":"is too large, must be 1 to 9007199254740991"}]}`},
		{"an unknown rule and a cost out of range", "/v1/check", `{"checks":[{"rule":"x","key":"","cost":-99999999999999999999}]}`, 422, `{"title":"Unprocessable Entity","status":422,"detail":"the request has 2 mistakes","errors":[` +
			`{"field":"checks[0].cost","detail":"is too small, must be 1 to 9007199254740991"},{"field":"checks[0].rule","detail":"there is no rule \"x\"; there are auth.createToken, heavy, direct\"é; GET /v1/rules lists the rules"}]}`},
		{"unknown rule without a key, and a cost", "/v1/peek", `{"checks":[{"rule":"auth","cost":0}]}`, 422, `{"title":"Unprocessable Entity","status":422,"detail":"the request has 3 mistakes","errors":[` +
			`{"field":"checks[0].key","detail":"is missing; a rule with one counter for all has the key \"\""},{"field":"checks[0].cost","detail":"is 0, must be 1 to 9007199254740991"},` +
			`{"field":"checks[0].rule","detail":"there is no rule \"auth\"; there are auth.createToken, heavy, direct\"é; GET /v1/rules lists the rules"}]}`},
		{"no key", "/v1/check", `{"checks":[{"rule":"direct\"é"}]}`, 422, `{"title":"Unprocessable Entity","status":422,"detail":"the request has a mistake","errors":[{"field":"checks[0].key","detail":"is missing; a rule with one counter for all has the key \"\""}]}`},
		{"long key", "/v1/refund", `{"checks":[{"rule":"direct\"é","key":"` + long + `"}]}`, 422, `{"title":"Unprocessable Entity","status":422,"detail":"the request has a mistake","errors":[{"field":"checks[0].key","detail":"the key has 1025 bytes, must have at most 1024"}]}`},
		{"key of a rule without", "/v1/reset", `{"checks":[{"rule":"heavy","key":"x"}]}`, 422, `{"title":"Unprocessable Entity","status":422,"detail":"the request has a mistake","errors":[{"field":"checks[0].key","detail":"the key must be empty: the rule has one counter for all requests"}]}`},
		{"the same twice", "/v1/check", `{"checks":[{"rule":"heavy","key":""},{"rule":"heavy","key":""}]}`, 422, `{"title":"Unprocessable Entity","status":422,"detail":"the request has a mistake","errors":[{"field":"checks","detail":"check 2 repeats the rule \"heavy\" and the key of check 1; add up their costs instead"}]}`},
		{"query", "/v1/check?status=1&stat=true", `{}`, 400, `{"title":"Bad Request","status":400,"detail":"the request has 2 mistakes","errors":[{"field":"query.stat","detail":"is not a parameter of this path"},{"field":"query.status","detail":"must be true or false, once"}]}`},
		{"query twice", "/v1/check?status=true&status=true", `{}`, 400, `{"title":"Bad Request","status":400,"detail":"the request has a mistake","errors":[{"field":"query.status","detail":"must be true or false, once"}]}`},
		{"query elsewhere", "/v1/refund?status=true", `{}`, 400, `{"title":"Bad Request","status":400,"detail":"the request has a mistake","errors":[{"field":"query.status","detail":"is not a parameter of this path"}]}`},
		{"broken query", "/v1/check?%zz", `{}`, 400, `{"title":"Bad Request","status":400,"detail":"the query is not understood; it may have escapes that are not complete"}`},
		{"large", "/v1/check", strings.Repeat(" ", MaxBody+1), 413, `{"title":"Request Entity Too Large","status":413,"detail":"the body may have 65536 bytes"}`},
		{"no path", "/v1/checks", `{}`, 404, `{"title":"Not Found","status":404,"detail":"there is nothing at this path; /openapi.json lists what there is"}`},
		{"not a GET", "/v1/rules", `{}`, 405, `{"title":"Method Not Allowed","status":405,"detail":"this path takes GET and HEAD"}`},
	}
	f := newFake(t)
	h := New(over(f), Options{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f.checks = nil
			w := post(h, tt.path, tt.body)
			if w.Code != tt.status || w.Body.String() != tt.want+"\n" {
				t.Errorf("answered\n%d %s\nwant\n%d %s", w.Code, w.Body, tt.status, tt.want)
			}
			if kind := w.Header().Get("Content-Type"); kind != "application/problem+json" {
				t.Errorf("Content-Type is %q", kind)
			}
			if f.checks != nil {
				t.Errorf("the store was asked: %v", f.checks)
			}
		})
	}
}

func TestMethodsAndTypes(t *testing.T) {
	h := New(over(newFake(t)), Options{})
	tests := []struct {
		method, path string
		header       http.Header
		status       int
		allow        string
	}{
		{"GET", "/v1/check", nil, 405, "POST"},
		{"DELETE", "/v1/reset", nil, 405, "POST"},
		{"HEAD", "/v1/peek", nil, 405, "POST"},
		{"POST", "/healthz", nil, 405, "GET, HEAD"},
		{"HEAD", "/healthz", nil, 200, ""},
		{"GET", "/metrics", nil, 404, ""},
		{"GET", "/", nil, 404, ""},
		{"GET", "/v1/../healthz", nil, 404, ""},
		{"POST", "/v1/check", http.Header{}, 415, ""},
		{"POST", "/v1/check", http.Header{"Content-Type": {"text/plain"}}, 415, ""},
		{"POST", "/v1/check", http.Header{"Content-Type": {"application/json", "text/plain"}}, 415, ""},
		{"POST", "/v1/check", http.Header{"Content-Type": {"application/json; charset=latin1"}}, 415, ""},
		{"POST", "/v1/check", http.Header{"Content-Type": {"application/json;;"}}, 415, ""},
		{"POST", "/v1/check", http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}, 415, ""},
		{"POST", "/v1/check", http.Header{"Content-Type": {"Application/JSON; charset=UTF-8"}}, 200, ""},
	}
	for _, tt := range tests {
		r := httptest.NewRequest(tt.method, tt.path, strings.NewReader(fmt.Sprintf(forUser, 1)))
		r.Header = tt.header
		w := serve(h, r)
		if w.Code != tt.status || w.Header().Get("Allow") != tt.allow {
			t.Errorf("%s %s %v: status %d, Allow %q; want %d, %q", tt.method, tt.path, tt.header, w.Code, w.Header().Get("Allow"), tt.status, tt.allow)
		}
	}
}

func TestDialects(t *testing.T) {
	tests := []struct {
		dialect httplimit.Dialect
		want    http.Header
	}{
		{httplimit.XRateLimit, http.Header{"X-Ratelimit-Limit": {"5"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"3"}}},
		{httplimit.RateLimitTriple, http.Header{"Ratelimit-Limit": {"5"}, "Ratelimit-Remaining": {"0"}, "Ratelimit-Reset": {"2"}}},
		{httplimit.Draft11, http.Header{"Ratelimit-Policy": {`"auth.createToken per 1m";q=20;w=60, "auth.createToken per 3s";q=5;w=3`}}},
		{httplimit.NoHeaders, nil},
	}
	for _, tt := range tests {
		h := New(over(newFake(t)), Options{Dialect: tt.dialect})
		post(h, "/v1/check", fmt.Sprintf(forUser, 5))
		w := post(h, "/v1/check?status=true", fmt.Sprintf(forUser, 1))
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "2" || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%v: status %d with headers %v", tt.dialect, w.Code, w.Header())
		}
		for name, want := range tt.want {
			if got := w.Header()[name]; len(got) != 1 || got[0] != want[0] {
				t.Errorf("%v: %s is %q, want %q", tt.dialect, name, got, want)
			}
		}
		if never := post(h, "/v1/check?status=true", fmt.Sprintf(forUser, 6)); never.Code != 429 || never.Header()["Retry-After"] != nil {
			t.Errorf("%v: a cost that never fits: status %d, Retry-After %q", tt.dialect, never.Code, never.Header()["Retry-After"])
		}
	}
}

func TestStoreErrors(t *testing.T) {
	const unavailable = `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Capacity is reduced for the moment","status":503,` +
		`"detail":"the store did not answer in time; whether the request was charged is not known"}`
	tests := []struct {
		err    error
		status int
		want   string
	}{
		{fmt.Errorf("%w: dial tcp 10.0.0.7:6379: refused", headgate.ErrUnavailable), 503, unavailable},
		{context.DeadlineExceeded, 503, unavailable},
		{errors.New("no idea"), 503, unavailable},
		{&headgate.InvalidError{Subject: "request", Problems: headgate.Problems{{Text: "a"}, {Text: "b"}}}, 422, `{"title":"Unprocessable Entity","status":422,"detail":"a; b"}`},
	}
	for _, tt := range tests {
		f := newFake(t)
		f.err = tt.err
		for _, path := range []string{"/v1/check", "/v1/check?status=true", "/v1/peek", "/v1/refund", "/v1/reset"} {
			w := post(New(over(f), Options{}), path, fmt.Sprintf(forUser, 1))
			if w.Code != tt.status || w.Body.String() != tt.want+"\n" {
				t.Errorf("%s, %v: %d %s, want %d %s", path, tt.err, w.Code, w.Body, tt.status, tt.want)
			}
			if got := w.Header().Get("Retry-After"); (got == "1") != (tt.status == 503) {
				t.Errorf("%s, %v: Retry-After %q", path, tt.err, got)
			}
		}
	}

	f := newFake(t)
	f.err = context.Canceled
	r := httptest.NewRequest(http.MethodPost, "/v1/check", strings.NewReader(fmt.Sprintf(forUser, 1)))
	r.Header.Set("Content-Type", "application/json")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if w := serve(New(over(f), Options{}), r.WithContext(ctx)); w.Body.Len() != 0 {
		t.Errorf("a caller who is gone was answered: %s", w.Body)
	}
}

func TestBrokenBodies(t *testing.T) {
	largest := fmt.Sprintf(forUser, 1)
	largest += strings.Repeat(" ", MaxBody-len(largest))
	tests := []struct {
		body   io.Reader
		length int64
		status int
		closes bool
	}{
		{broken{errBroken}, -1, 400, false},
		{broken{fmt.Errorf("read: %w", os.ErrDeadlineExceeded)}, -1, 408, true},
		{bytes.NewReader(make([]byte, MaxBody+1)), -1, 413, true},
		{broken{errBroken}, MaxBody + 1, 413, true}, // is not even read
		{strings.NewReader(largest), -1, 200, false},
	}
	for i, tt := range tests {
		r := httptest.NewRequest(http.MethodPost, "/v1/check", tt.body)
		r.Header.Set("Content-Type", "application/json")
		r.ContentLength = tt.length
		w := serve(New(over(newFake(t)), Options{}), r)
		if w.Code != tt.status || (w.Header().Get("Connection") == "close") != tt.closes {
			t.Errorf("body %d: %d %s, Connection %q; want %d", i+1, w.Code, w.Body, w.Header().Get("Connection"), tt.status)
		}
	}
}

func TestOperation(t *testing.T) {
	var ready error
	var deadline bool
	h := New(over(newFake(t)), Options{
		Ready: func(ctx context.Context) error {
			_, deadline = ctx.Deadline()
			return ready
		},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "metrics") }),
	})
	for path, want := range map[string]string{
		"/healthz": `{"status":"ok"}`, "/readyz": `{"status":"ready"}`, "/metrics": "metrics",
		"/v1/rules": `{"version":1,"hash":"5ec2e7","rules":[{"name":"auth.createToken","direct":false,"match":[{"entry":"route","not":false,"values":1,"prefixes":0,"networks":0,"hashes":0}],"per":["api_key"],"cost":1,"limits":[` +
			`{"limit":"20 per 1m","algorithm":"sliding_window","capacity":20,"period_ms":60000},{"limit":"5 per 3s","algorithm":"sliding_window","capacity":5,"period_ms":3000}],"mode":"enforce","enforce":100},` +
			`{"name":"heavy","direct":false,"match":[{"entry":"route","not":false,"values":0,"prefixes":1,"networks":0,"hashes":0}],"per":[],"cost":3,"limits":[` +
			`{"limit":"10 per 1s burst 500000000","algorithm":"leaky_bucket","capacity":500000000,"period_ms":1000}],"mode":"enforce","enforce":100},` +
			`{"name":"direct\"é","direct":true,"match":[],"per":[],"cost":1,"limits":[{"limit":"2 per 1s","algorithm":"token_bucket","capacity":2,"period_ms":1000}],"mode":"enforce","enforce":100}],` +
			`"allow":[],"deny":[{"name":"scanners","match":[{"entry":"route","not":false,"values":0,"prefixes":1,"networks":0,"hashes":0}]}]}`,
	} {
		if w := get(h, path); w.Code != http.StatusOK || w.Body.String() != want+"\n" {
			t.Errorf("%s: %d %s, want %s", path, w.Code, w.Body, want)
		}
	}
	ready = errors.New("redis at 10.0.0.7 is gone")
	if w := get(h, "/readyz"); w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "10.0.0.7") {
		t.Errorf("not ready: %d %s", w.Code, w.Body)
	}
	if !deadline {
		t.Error("the probe had no deadline")
	}
	if w := get(h, "/healthz"); w.Code != http.StatusOK {
		t.Errorf("healthy though not ready: %d", w.Code)
	}
}

// TestPolicyChanges swaps the policy under the handler.
func TestPolicyChanges(t *testing.T) {
	f := newFake(t)
	h := New(over(f), Options{})
	before := post(h, "/v1/peek", fmt.Sprintf(forUser, 1)).Body.String()
	f.set = samplePolicy(t)
	if after := post(h, "/v1/peek", fmt.Sprintf(forUser, 1)).Body.String(); after != before {
		t.Errorf("the same policy anew: %s, before: %s", after, before)
	}
}

func TestPanic(t *testing.T) {
	var log bytes.Buffer
	h := New(over(panicking{newFake(t)}), Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), AccessLog: true})
	w := post(h, "/v1/check", fmt.Sprintf(forUser, 1))
	if w.Code != http.StatusInternalServerError || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("a panic was answered with %d %s", w.Code, w.Body)
	}
	for _, want := range []string{"panic=boom", "handler_test.go", "status=500"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, &log)
		}
	}
	defer func() {
		if recover() != http.ErrAbortHandler { //nolint:errorlint // It is this very value.
			t.Error("ErrAbortHandler did not reach the server")
		}
	}()
	h = New(over(newFake(t)), Options{Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })})
	get(h, "/metrics")
}

type panicking struct{ *fake }

func (panicking) Take(context.Context, headgate.Op, []headgate.Check, []headgate.Decision) ([]headgate.Decision, error) {
	panic("boom")
}

func (panicking) Reserve(context.Context, headgate.Terms, []headgate.Check, []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	panic("boom")
}

func (panicking) Recall(context.Context, string) (headgate.Reservation, error) { panic("boom") }

func TestAccessLog(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	post(New(over(newFake(t)), Options{Logger: logger}), "/v1/check", fmt.Sprintf(forUser, 1))
	if log.Len() != 0 {
		t.Errorf("logged without being asked: %s", &log)
	}
	post(New(over(newFake(t)), Options{Logger: logger, AccessLog: true}), "/v1/check?status=true", fmt.Sprintf(forUser, 1))
	for _, want := range []string{"method=POST", "path=/v1/check", "status=200", "from=192.0.2.1:1234"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, &log)
		}
	}
	if strings.Contains(log.String(), "user42") || strings.Contains(log.String(), "status=true") {
		t.Errorf("the log holds the query or the key: %s", &log)
	}
}

// TestPooled checks that nothing of one request is left for the next.
func TestPooled(t *testing.T) {
	f := newFake(t)
	h := New(over(f), Options{})
	for range 50 {
		post(h, "/v1/check", `{"descriptor":{"api_key":"k1","route":"POST /v1/token"},"cost":3}`)
		if w := post(h, "/v1/check", `{"descriptor":{}}`); !strings.Contains(w.Body.String(), `"decisions":[]`) {
			t.Fatalf("an empty descriptor got %s", w.Body)
		}
		post(h, "/v1/check", `{"checks":[{"rule":"x","key":"k"}]}`)
		if w := post(h, "/v1/peek", `{"checks":[{"rule":"heavy","key":""}]}`); w.Code != 200 || len(f.checks) != 1 || f.checks[0].Cost != 3 {
			t.Fatalf("got %d %s, asked %v", w.Code, w.Body, f.checks)
		}
	}
	s := h.pool.Get().(*scratch)
	for _, c := range s.Checks[:cap(s.Checks)] {
		if c.Key != "" || c.Rule != nil {
			t.Errorf("a pooled check holds %+v", c)
		}
	}
}
