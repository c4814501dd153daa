package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/client"
	policyfile "github.com/headgate/headgate/config"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/memory"
)

// vectors is what client/vectors.json has for Go. Its tables of addresses, keys and hosts are
// checked where they are read, in internal/identity; its answers are for clients of the HTTP API.
type vectors struct {
	Token           string
	Servers         map[string][]string
	Calls, Requests struct {
		Policy []string
		Cases  []struct {
			Name, Server string
			Steps        []vectorStep
		}
	}
}

type vectorStep struct {
	Advance string
	Call    string
	Request json.RawMessage
	Outcome bool
	AtOf    *int `json:"at_of"`
	Want    struct {
		Status  int
		After   int64 `json:"retry_after_ms"`
		Headers map[string]string
		Body    any
		Error   string
		Fields  []string
		Problem any
	}
}

func readVectors(t *testing.T) (v vectors) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "client", "vectors.json"))
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil || len(v.Servers) != 4 || len(v.Calls.Cases) < 17 || len(v.Requests.Cases) < 13 {
		t.Fatalf("%d cases of calls and %d of requests: %v", len(v.Calls.Cases), len(v.Requests.Cases), err)
	}
	return v
}

// plain brings JSON of the API and JSON of protobuf to one form, in which zeros are left out and
// numbers are text. What no vector has, at and the epoch of a permit, is left out.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any)
		for name, value := range v {
			if p := plain(value); p != nil && name != "at" && name != "epoch" {
				out[name] = p
			}
		}
		if len(out) > 0 {
			return out
		}
	case []any:
		out := make([]any, 0, len(v))
		for _, value := range v {
			out = append(out, plain(value))
		}
		if len(out) > 0 {
			return out
		}
	case float64:
		if v != 0 {
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
	case string:
		if v != "" && v != "0" {
			return v
		}
	case bool:
		if v {
			return v
		}
	}
	return nil
}

// limitHeaders are those that the vectors have: that of retries, that of caches, and those of limits.
func limitHeaders(h http.Header) map[string]string {
	out := make(map[string]string)
	for name, values := range h {
		switch name = strings.ToLower(name); {
		case name == "retry-after", name == "cache-control", name == "x-content-type-options", strings.Contains(name, "ratelimit"):
			out[name] = strings.Join(values, ", ")
		}
	}
	return out
}

// turn moves the clock of a server.
func turn(t *testing.T, s *server, token, by string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.base+"/v1/clock", strings.NewReader(`{"advance":"`+by+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if _ = a.Body.Close(); a.StatusCode != http.StatusOK {
		t.Fatalf("the clock cannot be moved by %s: %d", by, a.StatusCode)
	}
}

// TestVectorsOverHTTP: the server answers as client/vectors.json says.
func TestVectorsOverHTTP(t *testing.T) {
	t.Parallel()
	v := readVectors(t)
	servers := v.servers(t)
	paths := map[string]string{
		"check": "/v1/check?status=true&at=true", "peek": "/v1/peek?status=true", "reserve": "/v1/reserve?status=true&at=true", "refund": "/v1/refund", "reset": "/v1/reset",
		"settle": "/v1/settle", "cancel": "/v1/cancel", "acquire": "/v1/permits/acquire", "release": "/v1/permits/release",
	}
	for _, c := range v.Calls.Cases {
		s, at := servers[c.Server], make([]any, len(c.Steps))
		for i, step := range c.Steps {
			if step.Advance != "" {
				turn(t, s, v.Token, step.Advance)
				continue
			}
			body, path := step.request(t, at), paths[step.Call]
			if step.Outcome {
				path += "&outcome=true"
			}
			a := s.post(t, path, body)
			var got map[string]any
			if err := json.Unmarshal([]byte(a.text), &got); err != nil {
				t.Fatal(err)
			}
			at[i] = got["at"]
			where := fmt.Sprintf("%s, step %d", c.Name, i+1)
			if a.status != step.Want.Status {
				t.Errorf("%s: %d %s", where, a.status, a.text)
				continue
			}
			if step.Want.Error != "" {
				var fields []string
				mistakes, _ := got["errors"].([]any)
				for _, m := range mistakes {
					fields = append(fields, m.(map[string]any)["field"].(string))
				}
				after, _ := strconv.ParseInt(a.header.Get("Retry-After"), 10, 64)
				if !slices.Equal(fields, step.Want.Fields) || after*1000 != step.Want.After {
					t.Errorf("%s: mistakes in %q, again in %d s", where, fields, after)
				}
				continue
			}
			for _, name := range []string{"type", "title", "status", "detail", "violated-policies"} {
				delete(got, name)
			}
			if permit, ok := got["permit"].(map[string]any); ok {
				got["permit"] = map[string]any{"slots": permit["slots"]}
			}
			if !reflect.DeepEqual(plain(got), plain(step.Want.Body)) {
				t.Errorf("%s: %s, want %v", where, a.text, step.Want.Body)
			}
			h := limitHeaders(a.header)
			delete(h, "cache-control") // It is not for the caller's client.
			if step.Want.Headers != nil && !maps.Equal(h, step.Want.Headers) {
				t.Errorf("%s: %v, want %v", where, h, step.Want.Headers)
			}
		}
	}
}

// request is the body of a call, with the time of the step that it names.
func (s *vectorStep) request(t *testing.T, at []any) string {
	t.Helper()
	if s.AtOf == nil {
		return string(s.Request)
	}
	var body map[string]any
	if err := json.Unmarshal(s.Request, &body); err != nil {
		t.Fatal(err)
	}
	body["at"] = at[*s.AtOf]
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestVectorsOfClient: the client for Go, which asks over gRPC, has the same decisions.
func TestVectorsOfClient(t *testing.T) {
	t.Parallel()
	v := readVectors(t)
	servers, clients := v.servers(t, "--grpc-listen", "127.0.0.1:0"), make(map[string]*client.Client)
	for name, s := range servers {
		c, err := client.New(grpcAddress(t, s), client.Plaintext(), client.Timeout(client.MaxTimeout))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		clients[name] = c
	}
	for _, of := range v.Calls.Cases {
		s, c, at := servers[of.Server], clients[of.Server], make([]any, len(of.Steps))
		for i, step := range of.Steps {
			if step.Advance != "" {
				turn(t, s, v.Token, step.Advance)
				continue
			}
			got, err := step.ask(t, c, at)
			where := fmt.Sprintf("%s, step %d", of.Name, i+1)
			if step.Want.Error != "" {
				_, invalid := errors.AsType[*headgate.InvalidError](err)
				mistake := invalid || errors.Is(err, headgate.ErrConflict) || errors.Is(err, headgate.ErrNoReservation)
				if mistake != (step.Want.Error == "mistake") || errors.Is(err, headgate.ErrUnavailable) == mistake {
					t.Errorf("%s: %v, %v", where, got, err)
				}
				continue
			}
			if want := plain(step.Want.Body); err != nil || !reflect.DeepEqual(plain(got), want) {
				t.Errorf("%s: %v, %v, want %v", where, plain(got), err, want)
			}
			at[i] = got["at"]
		}
	}
}

// ask makes a call with the client for Go. The answer is as that of the HTTP API.
func (s *vectorStep) ask(t *testing.T, c *client.Client, at []any) (map[string]any, error) {
	t.Helper()
	ctx := t.Context()
	read := func(m proto.Message) {
		text := strings.Replace(s.request(t, at), `"descriptor"`, `"entries"`, 1)
		if err := protojson.Unmarshal([]byte(text), m); err != nil {
			t.Fatal(err)
		}
	}
	answer := func(m proto.Message, err error) (map[string]any, error) {
		if err != nil {
			return nil, err
		}
		text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[string]any)
		return got, json.Unmarshal(text, &got)
	}
	switch s.Call {
	case "check", "reserve":
		if s.Call == "check" && !s.Outcome {
			r := new(headgatev1.CheckRequest)
			read(r)
			return answer(c.Check(ctx, r))
		}
		r := new(headgatev1.ReserveRequest)
		read(r)
		got, err := answer(c.Reserve(ctx, r))
		if verdict, ok := got["verdict"].(map[string]any); ok {
			delete(got, "verdict")
			maps.Copy(got, verdict)
		}
		return got, err
	case "peek":
		r := new(headgatev1.PeekRequest)
		read(r)
		return answer(c.Peek(ctx, r))
	case "refund":
		r := new(headgatev1.RefundRequest)
		read(r)
		return answer(c.Refund(ctx, r))
	case "reset":
		r := new(headgatev1.ResetRequest)
		read(r)
		rules, err := c.Reset(ctx, r)
		names := make([]any, len(rules))
		for i := range rules {
			names[i] = rules[i]
		}
		return map[string]any{"reset": names}, err
	case "settle":
		r := new(headgatev1.SettleRequest)
		read(r)
		return answer(c.Settle(ctx, r))
	case "cancel":
		r := new(headgatev1.CancelRequest)
		read(r)
		return answer(c.Cancel(ctx, r.GetReservation()))
	}
	var r struct{ Rule, Key, Holder string }
	if err := json.Unmarshal(s.Request, &r); err != nil {
		t.Fatal(err)
	}
	permits := c.Permits(r.Rule)
	if s.Call == "release" {
		released, err := permits.Release(ctx, r.Key, r.Holder, 0)
		return map[string]any{"released": released}, err
	}
	a, err := permits.Acquire(ctx, store.PermitRequest{Key: r.Key, Holder: r.Holder, Cost: 1, Limit: 1, TTL: 30 * time.Second})
	got := map[string]any{"allowed": a.Granted(), "in_use": float64(a.InUse), "limit": float64(a.Limit), "retry_after_ms": s.Want.Body.(map[string]any)["retry_after_ms"]}
	if a.Granted() {
		got["permit"] = map[string]any{"slots": []any{float64(a.Lease.Slots[0])}}
	}
	return got, err
}

// TestVectorsOfMiddleware: the middleware for net/http answers as client/vectors.json says.
func TestVectorsOfMiddleware(t *testing.T) {
	t.Parallel()
	v := readVectors(t)
	set, err := policyfile.Parse("vectors", []byte(strings.Join(v.Requests.Policy, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	dialects := map[string]httplimit.Dialect{"x-ratelimit": httplimit.XRateLimit, "ratelimit-triple": httplimit.RateLimitTriple, "draft-11": httplimit.Draft11}
	for server := range v.Servers {
		clock := memory.NewManualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		var decides headgate.Store = memory.New(memory.Clock(clock.Micros))
		dialect, turned := dialects[server]
		if !turned {
			layer, err := fallback.New(silent{memory.New()}, fallback.Options{Local: memory.New()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = layer.Close(context.Background()) })
			decides, dialect = layer.Store(), httplimit.XRateLimit
		}
		mux := http.NewServeMux()
		limit, err := httplimit.New(decides, httplimit.Policy(set), httplimit.Headers(dialect), httplimit.OnStoreError(httplimit.FailClosed),
			httplimit.TrustProxies(httplimit.XForwardedFor, "127.0.0.0/8"), httplimit.Route(httplimit.MuxRoute(mux)))
		if err != nil {
			t.Fatal(err)
		}
		ok := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }
		mux.HandleFunc("GET /items/{id}", ok)
		mux.HandleFunc("GET /paced", ok)
		mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
			status, err := strconv.Atoi(r.Header.Get("X-Status"))
			if err != nil {
				status = http.StatusInternalServerError
			}
			w.WriteHeader(status)
		})
		site := httptest.NewServer(limit(mux))
		t.Cleanup(site.Close)
		for _, c := range v.Requests.Cases {
			if c.Server != server {
				continue
			}
			for i, step := range c.Steps {
				if step.Advance != "" {
					by, err := time.ParseDuration(step.Advance)
					if err != nil {
						t.Fatal(err)
					}
					clock.Advance(by)
					continue
				}
				if problem := step.requested(t, site.URL); problem != "" {
					t.Errorf("%s, step %d: %s", c.Name, i+1, problem)
				}
			}
		}
	}
}

// requested sends the request of a step, and returns what is wrong with the answer, or "".
func (s *vectorStep) requested(t *testing.T, url string) string {
	t.Helper()
	var q struct {
		Method, Path string
		Headers      [][2]string
		Times        int
	}
	if err := json.Unmarshal(s.Request, &q); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), q.Method, url+q.Path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range q.Headers {
		if i == len(q.Headers)-1 && q.Times > 0 {
			h[1] = strings.Repeat(h[1], q.Times)
		}
		r.Header.Add(h[0], h[1])
	}
	transport := &http.Transport{DisableKeepAlives: true}
	a, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	h := limitHeaders(a.Header)
	if a.StatusCode == http.StatusNotFound {
		delete(h, "x-content-type-options") // The mux writes it.
	}
	if a.StatusCode != s.Want.Status || !maps.Equal(h, s.Want.Headers) {
		return fmt.Sprintf("%d %v, want %d %v: %s", a.StatusCode, h, s.Want.Status, s.Want.Headers, text)
	}
	if s.Want.Problem == nil {
		return ""
	}
	var got any
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&got); err != nil || !reflect.DeepEqual(got, s.Want.Problem) {
		return fmt.Sprintf("%s, %v; want %v", text, err, s.Want.Problem)
	}
	return ""
}

// silent is a store that does not answer.
type silent struct{ *memory.Store }

func (silent) Take(_ context.Context, _ headgate.Op, _ []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	return dst, headgate.ErrUnavailable
}

func (silent) Reserve(_ context.Context, _ headgate.Terms, _ []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	return headgate.Reservation{}, dst, headgate.ErrUnavailable
}

// servers starts those that the calls need, by name; that of "" is x-ratelimit.
func (v *vectors) servers(t *testing.T, args ...string) map[string]*server {
	t.Helper()
	started := make(map[string]*server)
	for name, options := range v.Servers {
		if name == "x-ratelimit" || name == "away" {
			started[name] = administered(t, v.Token, v.Calls.Policy, append(options, args...)...)
		}
	}
	started[""] = started["x-ratelimit"]
	return started
}

// administered starts a server with the admin's token.
func administered(t *testing.T, token string, policy []string, args ...string) *server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return serve(t, append([]string{"--config", policyFile(t, strings.Join(policy, "\n")), "--admin-token-file", file}, args...)...)
}
