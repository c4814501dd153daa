package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/internal/llm"
	"github.com/headgate/headgate/internal/llm/llmtest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/memory"
)

// llmFixture is a gateway before a provider that knows the truth.
type llmFixture struct {
	*fixture
	d        *decide.Over
	provider *llmtest.Provider
	direct   string // the provider's own URL
}

// The models of these tests: a token of input costs one unit of money, one of output two.
var llmModels = policy.Models(
	models.Model{Name: "m*", Priced: true, Input: 1_000_000, CachedInput: 500_000, Output: 2_000_000, MaxOutput: 50},
	models.Model{Name: "fast", Is: "m-large"},
	models.Model{Name: "free"},
	models.Model{Name: "tiered", Priced: true, MaxOutput: 5, OutputTiers: &models.OutputTiers{Entry: "api_key", Values: map[string]int64{"mine": 7}}},
)

// llmRules count everything, in windows of a year.
func llmRules(limits [5]int64) []policy.Rule {
	var rules []policy.Rule
	for c, limit := range limits {
		counted := models.Counted(c)
		l := headgate.Limit{Algorithm: headgate.FixedWindow, Count: limit, Align: headgate.AlignYear}
		rules = append(rules, policy.Rule{Limits: headgate.MustRule(counted.String(), l), Counts: counted})
	}
	return rules
}

var plenty = [5]int64{hourly, hourly, hourly, hourly, hourly}

func newLLM(t *testing.T, limits [5]int64, change func(*gatewayfile.LLM)) *llmFixture {
	t.Helper()
	f := &llmFixture{provider: &llmtest.Provider{Key: "theirs"}, d: decider(t, llmRules(limits), llmModels)}
	f.d.Store = memory.New(memory.Clock(stopped))
	s := httptest.NewServer(f.provider)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	f.direct = s.URL
	o := to(s.URL)
	o.MaxDelay = time.Millisecond
	o.Upstreams[0].LLM = &gatewayfile.LLM{API: llm.OpenAI, Key: "theirs"}
	if change != nil {
		change(o.Upstreams[0].LLM)
	}
	f.fixture = serveGateway(t, f.d, o)
	return f
}

// used is how much is used under each rule, when no request is in progress.
func (f *llmFixture) used(t *testing.T, limits [5]int64) (used [5]int64) {
	t.Helper()
	eventually(t, "all requests have ended", func() bool { return f.counts.inFlight.Load() == 0 })
	for c := range used {
		check, err := f.d.Rules().Check(models.Counted(c).String(), "", 1)
		if err != nil {
			t.Fatal(err)
		}
		decisions, err := f.d.Store.Take(context.Background(), headgate.OpPeek, []headgate.Check{check}, nil)
		if err != nil {
			t.Fatal(err)
		}
		used[c] = limits[c] - decisions[0].Remaining
	}
	return used
}

func chatCall(stream bool, user string) string {
	return fmt.Sprintf(`{"model":"m","max_tokens":20,"stream":%v,"user":"%s","messages":[{"role":"user","content":"hi"}]}`, stream, user)
}

// Calls are charged at what the provider says that they have used, whatever becomes of them.
func TestLLMSettles(t *testing.T) {
	t.Parallel()
	const reserved = -1
	for _, tt := range []struct {
		what, path, body string
		seen             bool
		status           int
		output           int64 // charged; reserved is the estimate
		free             bool  // everything is given back
	}{
		{"chat", "/v1/chat/completions", chatCall(false, "words=5"), false, 200, 5, false},
		{"chat, as a stream", "/v1/chat/completions", chatCall(true, "words=5"), false, 200, 5, false},
		{"embeddings", "/v1/embeddings", `{"model":"m","input":"hi"}`, false, 200, 0, false},
		{"messages", "/v1/messages", `{"model":"m","max_tokens":20,"metadata":{"user_id":"words=3"},"messages":[]}`, false, 200, 3, false},
		{"messages, as a stream", "/v1/messages", `{"model":"m","max_tokens":20,"stream":true,"metadata":{"user_id":"words=3"},"messages":[]}`, false, 200, 3, false},
		{"responses", "/v1/responses", `{"model":"m","max_output_tokens":20,"user":"words=3","input":"hi"}`, false, 200, 3, false},
		{"responses, as a stream", "/v1/responses", `{"model":"m","max_output_tokens":20,"stream":true,"user":"words=3","input":"hi"}`, false, 200, 3, false},
		{"no usage", "/v1/chat/completions", chatCall(false, "words=5 usage=none"), false, 200, reserved, false},
		{"a stream without usage", "/v1/chat/completions", chatCall(true, "words=5 usage=none"), false, 200, reserved, false},
		{"one of which the seen counts", "/v1/chat/completions", chatCall(true, "words=5 usage=none"), true, 200, 6, false},
		{"no usage, and of no stream anything is seen", "/v1/chat/completions", chatCall(false, "words=5 usage=none"), true, 200, reserved, false},
		{"broken off", "/v1/chat/completions", chatCall(true, "fail=5"), false, 200, reserved, false},
		{"broken off, and the seen counts", "/v1/chat/completions", chatCall(true, "fail=5"), true, 200, 5, false},
		{"broken off at the end", "/v1/chat/completions", chatCall(true, "fail=99"), false, 200, reserved, false},
		{"refused", "/v1/chat/completions", chatCall(true, "fail=before"), false, 500, 0, true},
		{"refused by a limit of the provider", "/v1/chat/completions", chatCall(false, "limited"), false, 429, 0, true},
		{"broken off before the first byte", "/v1/chat/completions", chatCall(false, "fail=begin"), false, 502, reserved, false},
		{"broken off before the first byte, and the provider has worked", "/v1/chat/completions", chatCall(false, "fail=5"), true, 502, reserved, false},
	} {
		f := newLLM(t, plenty, func(l *gatewayfile.LLM) { l.SettleSeen = tt.seen })
		var told [5]int64 // what observers are told
		f.d.Spending = func(_ context.Context, s *models.Spending) {
			told[0]++
			for _, c := range s.Charges {
				told[c.Counts] += c.Units
			}
			if known := tt.output != reserved && !tt.seen; s.Known != known || s.Label() != "m*" || known && s.Used.Output != tt.output {
				t.Errorf("%s: observers are told %+v", tt.what, s)
			}
			if streamed := strings.Contains(tt.body, `"stream":true`); (s.FirstChunk > 0) != streamed {
				t.Errorf("%s: the first chunk took %v", tt.what, s.FirstChunk)
			}
		}
		res := send(t.Context(), t, client(t), http.MethodPost, f.url+tt.path, strings.NewReader(tt.body), "Authorization: Bearer mine", "Content-Type: application/json")
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode != tt.status {
			t.Errorf("%s: status %d, want %d", tt.what, res.StatusCode, tt.status)
		}
		used := f.used(t, plenty)
		var want [5]int64
		if !tt.free {
			input, output, cached := f.provider.Input.Load(), tt.output, int64(0)
			known := output != reserved
			if strings.Contains(tt.path, "chat") && known && !tt.seen {
				cached = input / 2
			}
			if !known {
				input, output = int64(len(tt.body)), 20
			}
			if tt.seen && known {
				input = int64(len(tt.body))
			}
			want = [5]int64{1, input, output, input + output, input - cached + (cached+1)/2 + 2*output}
		}
		if used != want {
			t.Errorf("%s: requests, input, output, tokens and money are used by %v, want %v", tt.what, used, want)
		}
		if told != want {
			t.Errorf("%s: observers are told of %v, want %v", tt.what, told, want)
		}
		if used[1] < f.provider.Input.Load() || used[2] < f.provider.Output.Load() {
			t.Errorf("%s: charged %v, but the provider has counted %d and %d", tt.what, used, f.provider.Input.Load(), f.provider.Output.Load())
		}
		for _, seen := range f.provider.Seen() {
			if seen.Header.Get("Authorization") != "Bearer theirs" || strings.Contains(fmt.Sprint(seen.Header), "mine") {
				t.Errorf("%s: the provider has got %v", tt.what, seen.Header)
			}
		}
	}
}

// Clients get what the provider would answer them directly, and the provider what they have sent,
// byte for byte.
func TestLLMBytes(t *testing.T) {
	t.Parallel()
	f := newLLM(t, plenty, nil)
	c := client(t)
	packed := new(bytes.Buffer)
	z := gzip.NewWriter(packed)
	_, _ = io.WriteString(z, chatCall(false, "words=2"))
	_ = z.Close()
	for _, tt := range []struct {
		path, body, sent string // sent is what the provider gets; "" is the body
		encoding         string
	}{
		{"/v1/chat/completions", ` {"unknown": [1, {"x":null}], "model":"m","max_tokens":3}` + "\n", "", ""},
		{"/v1/chat/completions", `{"model":"m","max_tokens":3,"stream":true}`, `{"stream_options":{"include_usage":true},"model":"m","max_tokens":3,"stream":true}`, ""},
		{"/v1/chat/completions", `{"model":"m","max_tokens":3,"stream":true,"stream_options":{"include_usage":true}}`, "", ""},
		{"/v1/chat/completions", `{"model":"m","max_tokens":300}`, `{"model":"m","max_tokens":50}`, ""},
		{"/v1/chat/completions", `{"model":"tiered","max_tokens":300}`, `{"model":"tiered","max_tokens":7}`, ""},
		{"/v1/chat/completions", `{"max_tokens":3,"model":"fast"}`, `{"max_tokens":3,"model":"m-large"}`, ""},
		{"/v1/chat/completions", packed.String(), "", "gzip"},
		{"/v1/messages", `{"model":"m","max_tokens":3,"stream":true}`, "", ""},
		{"/v1/responses", `{"model":"m","max_output_tokens":3,"stream":true}`, "", ""},
		{"/v1/responses", `{"model":"m"}`, `{"max_output_tokens":50,"model":"m"}`, ""},
		{"/v1/embeddings", `{"model":"m","input":"x"}`, "", ""},
	} {
		headers := []string{"Authorization: Bearer mine"}
		if tt.encoding != "" {
			headers = append(headers, "Content-Encoding: "+tt.encoding)
		}
		got := ask(t, c, http.MethodPost, f.url+tt.path, strings.NewReader(tt.body), headers...)
		sent := tt.sent
		if sent == "" {
			sent = tt.body
		}
		seen := f.provider.Seen()
		if len(seen) != 1 || seen[0].Body != sent || seen[0].Header.Get("Content-Encoding") != tt.encoding {
			t.Errorf("%s: the provider has got %q, want %q", tt.body, seen, sent)
			continue
		}
		if tt.encoding != "" {
			continue // the provider cannot read it
		}
		asked := sent
		if strings.Contains(tt.sent, "include_usage") {
			asked = tt.body // what the client gets is what it asked for
		}
		direct := ask(t, c, http.MethodPost, f.direct+tt.path, strings.NewReader(asked), "Authorization: Bearer theirs")
		f.provider.Seen()
		want := direct.text
		if asked != sent {
			// The provider counts the bytes of the call, but the client's answer has no usage.
			if strings.Contains(want, "usage") {
				t.Fatal("the answer has usage")
			}
		}
		if got.text != want || got.StatusCode != direct.StatusCode || got.Header.Get("Content-Type") != direct.Header.Get("Content-Type") || got.Header.Get("X-Request-Id") != "req-1" {
			t.Errorf("%s: the client gets %d\n%s\nwant %d\n%s", tt.body, got.StatusCode, got.text, direct.StatusCode, direct.text)
		}
		if remaining := got.Header.Get("X-Ratelimit-Remaining-Requests"); remaining == "99999" || remaining == "" {
			t.Errorf("%s: the client is told that %s requests are left", tt.body, remaining)
		}
	}
}

// Refusals have the shape that the provider's clients know.
func TestLLMRefusals(t *testing.T) {
	t.Parallel()
	limits := [5]int64{hourly, hourly, 30, hourly, 200}
	for _, api := range []llm.API{llm.OpenAI, llm.Anthropic} {
		f := newLLM(t, limits, func(l *gatewayfile.LLM) { l.API, l.RefuseOutput = api, true })
		c := client(t)
		for _, tt := range []struct {
			what, path, body string
			status           int
			want             string
			headers          []string
		}{
			{"a limit on tokens", "/v1/chat/completions", `{"model":"m","max_tokens":31}`, 429, `The limit \"30 per calendar year\" of the rule \"output_tokens\" has 30 output_tokens left, and the call may need 31. It never fits`, []string{"X-Should-Retry: false"}},
			{"a limit on money", "/v1/chat/completions", `{"model":"m","max_tokens":30,"x":"` + strings.Repeat("x", 150) + `"}`, 429, `has 200 units of money (each 1/1000000 of the currency) left, and the call may need 246. It never fits`, nil},
			{"a model without a price", "/v1/chat/completions", `{"model":"free","max_tokens":1}`, 400, `the model \"free\" has no price`, nil},
			{"an unknown one", "/v1/chat/completions", `{"model":"x","max_tokens":1}`, 400, `has no price`, nil},
			{"more output than the model may give", "/v1/chat/completions", `{"model":"m","max_tokens":51}`, 400, `must be at most 50 for the model \"m\"`, nil},
			{"twice", "/v1/chat/completions", `{"model":"m","max_tokens":1,"max_tokens":2}`, 400, `twice in one object`, nil},
			{"a text for a number", "/v1/messages", `{"model":"m","max_tokens":"1"}`, 400, `max_tokens must be a whole number`, nil},
			{"no body", "/v1/messages", ``, 400, `The call cannot be counted: The call has no body.`, nil},
			{"another path", "/v1/batches", `{}`, 404, `passes on calls to`, nil},
			{"a path that looks like one", "/v1/chat/completions/", `{"model":"m"}`, 404, `passes on calls to`, nil},
		} {
			got := ask(t, c, http.MethodPost, f.url+tt.path, strings.NewReader(tt.body), append(tt.headers[:0:0], "Authorization: Bearer mine")...)
			got.wants(t, tt.status, tt.headers...)
			var body struct {
				Type  string
				Error struct {
					Message, Type string
					Param, Code   *string
				}
			}
			if err := json.Unmarshal([]byte(got.text), &body); err != nil || !strings.Contains(got.text, tt.want) || (body.Type == "error") != (api == llm.Anthropic) || body.Error.Type == "" {
				t.Errorf("%v: %s: %s, want %q", api, tt.what, got.text, tt.want)
			}
			if tt.what == "twice" && api == llm.OpenAI && (body.Error.Param == nil || *body.Error.Param != "max_tokens") {
				t.Errorf("the field that is wrong is not named: %s", got.text)
			}
			if tt.status == 429 && api == llm.OpenAI && (body.Error.Code == nil || *body.Error.Code != "rate_limit_exceeded" || got.Header.Get("X-Ratelimit-Limit-Requests") != "1000000") {
				t.Errorf("%s: %s %v", tt.what, got.text, got.Header)
			}
			if tt.status == 429 && api == llm.Anthropic && (body.Error.Type != "rate_limit_error" || got.Header.Get("Anthropic-Ratelimit-Output-Tokens-Remaining") != "30") {
				t.Errorf("%s: %s %v", tt.what, got.text, got.Header)
			}
		}
		if n := f.provider.Calls.Load(); n > 0 {
			t.Errorf("%v: the provider has got %d calls", api, n)
		}
		if used := f.used(t, limits); used[1]+used[2]+used[3]+used[4] != 0 {
			t.Errorf("%v: %v is charged for calls that were refused", api, used)
		}
		if got := get(t, c, f.url+"/v1/models", "Authorization: Bearer mine"); got.StatusCode != 200 || !strings.Contains(got.text, `"id":"m"`) {
			t.Errorf("the list of models is %d %s", got.StatusCode, got.text)
		}
	}
}

// Under a rule that reserves what is typical, calls pass that declare more than is left of it.
func TestLLMTypical(t *testing.T) {
	t.Parallel()
	for typical, want := range map[bool]int{false: 21, true: 30} {
		l := headgate.Limit{Algorithm: headgate.FixedWindow, Count: 70, Align: headgate.AlignYear}
		provider := httptest.NewServer(&llmtest.Provider{})
		t.Cleanup(provider.Close)
		o := to(provider.URL)
		o.Upstreams[0].LLM = new(gatewayfile.LLM)
		f := serveGateway(t, decider(t, []policy.Rule{{
			Limits: headgate.MustRule("output", l), Counts: models.OutputTokens, Reservation: policy.Reservation{Typical: typical},
		}}, llmModels), o)
		passed := 0
		for range 30 {
			got := ask(t, client(t), http.MethodPost, f.url+"/v1/chat/completions", strings.NewReader(`{"model":"m","max_tokens":50,"user":"words=1","messages":[]}`))
			eventually(t, "the call is settled", func() bool { return f.counts.inFlight.Load() == 0 })
			if got.StatusCode == http.StatusOK {
				passed++
			}
		}
		if passed != want {
			t.Errorf("typical %v: %d calls of 1 token, which declare 50, passed a limit of 70, want %d", typical, passed, want)
		}
	}
}

// After a refusal of the provider for its own limits, calls are kept back if they are to be heeded,
// and charged nothing.
func TestLLMHeeds(t *testing.T) {
	t.Parallel()
	for _, heed := range []bool{false, true} {
		f := newLLM(t, plenty, func(l *gatewayfile.LLM) { l.Heed = heed })
		call := func(user string) answer {
			return ask(t, client(t), http.MethodPost, f.url+"/v1/chat/completions", strings.NewReader(chatCall(false, user)))
		}
		got := call("limited")
		if got.wants(t, http.StatusTooManyRequests, "Retry-After: 7"); !strings.Contains(got.text, "the provider's own limit") {
			t.Errorf("heed %v: the client gets %s", heed, got.text)
		}
		got = call("words=1")
		if !heed {
			got.wants(t, http.StatusOK)
			continue
		}
		if got.wants(t, http.StatusTooManyRequests); !strings.Contains(got.text, `The provider is at a limit of its own.","type":"requests"`) || got.Header.Get("Retry-After") == "" {
			t.Errorf("while the provider is at its limit, the client gets %v %s", got.Header, got.text)
		}
		if seen := f.provider.Seen(); len(seen) != 1 {
			t.Errorf("the provider has got %d calls", len(seen))
		}
		if used := f.used(t, plenty); used != ([5]int64{}) {
			t.Errorf("%v is charged for calls that the provider never answered", used)
		}
	}
}

// The answer to a client that has gone is read to its end, for so long as the options say.
func TestLLMDrains(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		what   string
		drain  time.Duration
		stream bool
		user   string
		output int64 // charged; 20 is what is declared
	}{
		{"a stream", within, true, "words=7 pause=10ms", 7},
		{"an answer that has not begun", within, false, "words=7 pause=10ms", 7},
		{"a stream that lasts too long", time.Millisecond, true, "words=7 pause=1h", 20},
		{"an answer that lasts too long", time.Millisecond, false, "words=7 pause=1h", 20},
		{"not at all", 0, true, "words=7 pause=1h", 20},
	} {
		f := newLLM(t, plenty, func(l *gatewayfile.LLM) { l.Drain = tt.drain })
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/v1/chat/completions", strings.NewReader(chatCall(tt.stream, tt.user)))
		if err != nil {
			t.Fatal(err)
		}
		c, gone := client(t), make(chan struct{})
		go func() {
			defer close(gone)
			if res, err := c.Do(r); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			}
		}()
		eventually(t, "the provider has the call", func() bool { return f.provider.Calls.Load() == 1 })
		cancel()
		<-gone
		if used := f.used(t, plenty); used[2] != tt.output {
			t.Errorf("%s: %d tokens of output are charged, want %d", tt.what, used[2], tt.output)
		}
	}
}

// A large body, compressed or not, is refused, and takes no more memory than it may.
func TestLLMLargeBodies(t *testing.T) {
	t.Parallel()
	f := newLLM(t, plenty, nil)
	packed := new(bytes.Buffer)
	z := gzip.NewWriter(packed)
	_, _ = io.Copy(z, io.LimitReader(zeros{}, gatewayfile.DefaultMaxCall+1))
	_ = z.Close()
	for _, tt := range []struct {
		body    io.Reader
		headers []string
	}{
		{packed, []string{"Content-Encoding: gzip"}},
		{io.LimitReader(zeros{}, gatewayfile.DefaultMaxCall+1), nil},
	} {
		got := ask(t, client(t), http.MethodPost, f.url+"/v1/chat/completions", tt.body, tt.headers...)
		if got.wants(t, http.StatusRequestEntityTooLarge); !strings.Contains(got.text, "The request is too large: Its body may have 33554432 bytes.") {
			t.Errorf("the client is told %s", got.text)
		}
	}
	for _, encoding := range []string{"br", "gzip"} {
		ask(t, client(t), http.MethodPost, f.url+"/v1/chat/completions", strings.NewReader(chatCall(false, "")), "Content-Encoding: "+encoding).wants(t, http.StatusBadRequest)
	}
}

// Events pass as they come: each is with the client before the provider makes the next.
func TestLLMStreamsAtOnce(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	s := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range 5 {
			_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{}}],\"usage\":null}\n\n")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
	})
	o := to(s.URL)
	o.Upstreams[0].LLM = &gatewayfile.LLM{}
	f := serveGateway(t, decider(t, llmRules(plenty), llmModels), o)
	res := send(t.Context(), t, client(t), http.MethodPost, f.url+"/v1/chat/completions", strings.NewReader(chatCall(true, "")))
	defer res.Body.Close()
	const want = "data: {\"choices\":[{\"delta\":{}}]}\n\n"
	for range 5 {
		got := make([]byte, len(want))
		if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != want {
			t.Fatalf("got %q, %v", got, err)
		}
		next <- struct{}{}
	}
}

// The body of a call is let go of when its answer has begun, which may last long. The test measures
// the heap, so no other one runs beside it.
func TestLLMBodiesAreLetGo(t *testing.T) {
	s := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[{}]}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	o := to(s.URL)
	o.Upstreams[0].LLM = new(gatewayfile.LLM)
	f := serveGateway(t, decider(t, []policy.Rule{perKey(hourly)}, llmModels), o)
	call := strings.Replace(chatCall(true, "x"), `"hi"`, `"`+strings.Repeat("x", 512<<10)+`"`, 1)
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // of what a sync.Pool has kept
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const streams = 12
	c, before := client(t), heap()
	for range streams {
		res := send(ctx, t, c, http.MethodPost, f.url+"/v1/chat/completions", strings.NewReader(call))
		defer res.Body.Close()
		if _, err := io.ReadFull(res.Body, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
	}
	if kept := (heap() - before) / streams; kept > int64(len(call))/2 {
		t.Errorf("each stream keeps %d bytes in memory, of a call of %d", kept, len(call))
	}
}

// lately is a store whose limits, while full is set, have nothing left when they are looked at, and
// something when they are asked. While down is set, it takes nothing unless it is reserved.
type lately struct {
	*memory.Store
	full, down atomic.Bool
}

func (s *lately) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if op == headgate.OpTake && s.down.Load() {
		return dst, headgate.ErrUnavailable
	}
	out, err := s.Store.Take(ctx, op, checks, dst)
	for i := range out[len(dst):] {
		out[len(dst)+i].Allowed = out[len(dst)+i].Allowed && (op != headgate.OpPeek || !s.full.Load())
	}
	return out, err
}

// A large body is read only of a client that is not on the deny list and has requests left.
func TestLLMBodiesThatNeedNotBeRead(t *testing.T) {
	t.Parallel()
	provider := httptest.NewServer(&llmtest.Provider{})
	t.Cleanup(provider.Close)
	o := to(provider.URL)
	o.Upstreams[0].LLM = new(gatewayfile.LLM)
	d := decider(t, []policy.Rule{perKey(1)}, llmModels, policy.Denied(policy.ListEntry{Name: "mallory", Match: []policy.Condition{policy.Equal("api_key", "mallory")}}))
	store := &lately{Store: memory.New(memory.Clock(stopped))}
	store.full.Store(true)
	d.Store = store
	f := serveGateway(t, d, o)
	large := strings.Replace(chatCall(false, "words=1"), `"hi"`, `"`+strings.Repeat("x", 100_000)+`"`, 1)
	passes := func(key string) {
		t.Helper()
		ask(t, client(t), http.MethodPost, f.url+"/v1/chat/completions", strings.NewReader(large), "X-Api-Key: "+key).wants(t, http.StatusOK)
	}
	passes("ada")
	store.full.Store(false)
	passes("bob")
	store.down.Store(true)
	// What the store has failed to take is not given back, which would make room.
	ask(t, client(t), http.MethodPost, f.url+"/v1/chat/completions", strings.NewReader(large), "X-Api-Key: bob").wants(t, http.StatusTooManyRequests)
	store.down.Store(false)
	for _, tt := range []struct {
		key, headers string
		status       int
	}{
		{"mallory", "Content-Length: 10000000", http.StatusForbidden},
		{"mallory", "Transfer-Encoding: chunked", http.StatusForbidden},
		{"ada", "Content-Length: 10000000", http.StatusTooManyRequests}, // charged once, though it was asked twice
		{"bob", "Transfer-Encoding: chunked", http.StatusTooManyRequests},
	} {
		answer := raw(t, strings.TrimPrefix(f.url, "http://"), "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nX-Api-Key: "+tt.key+"\r\n"+tt.headers+"\r\n\r\n")
		res, err := http.ReadResponse(answer, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body) // the status says enough
		if _ = res.Body.Close(); res.StatusCode != tt.status || !strings.Contains(string(text), `"error"`) {
			t.Errorf("%s, %s: %d %s, want %d", tt.key, tt.headers, res.StatusCode, text, tt.status)
		}
	}
}

// A cap holds: a thousand calls at once, streams and others, of which many are left after any number
// of events, use no more than the cap, and what is charged is no less than what was used.
func TestLLMCapHolds(t *testing.T) {
	t.Parallel()
	limits := [5]int64{hourly, hourly, hourly, hourly, 50_000}
	f := newLLM(t, limits, nil)
	transport := &http.Transport{MaxConnsPerHost: 200}
	t.Cleanup(transport.CloseIdleConnections)
	c := &http.Client{Transport: transport, Timeout: within}
	var wait sync.WaitGroup
	var mu sync.Mutex // guards statuses
	statuses := make(map[int]int)
	for i := range 1000 {
		wait.Go(func() {
			user := []string{"words=20", "words=3", "fail=4", "usage=none", "fail=before", "fail=begin"}[i%6]
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/v1/chat/completions", strings.NewReader(chatCall(i%3 != 0, user)))
			if err != nil {
				t.Error(err)
				return
			}
			res, err := c.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			mu.Lock()
			statuses[res.StatusCode]++
			mu.Unlock()
			// One of three leaves, after one more event than the one before.
			if leaves := i%3 == 1; leaves {
				_, _ = io.ReadFull(res.Body, make([]byte, 150*(i/3%22)))
				cancel()
			}
			_, _ = io.Copy(io.Discard, res.Body)
		})
	}
	wait.Wait()
	used := f.used(t, limits)
	if f.provider.Output.Load()*2+f.provider.Input.Load()*3/4 > limits[4] || used[4] > limits[4] {
		t.Errorf("the provider has counted %d and %d, charged are %v: more than the cap", f.provider.Input.Load(), f.provider.Output.Load(), used)
	}
	if used[1] < f.provider.Input.Load() || used[2] < f.provider.Output.Load() {
		t.Errorf("charged are %v, less than the %d and %d that the provider has counted", used, f.provider.Input.Load(), f.provider.Output.Load())
	}
	if statuses[200] == 0 || statuses[429] == 0 {
		t.Errorf("the statuses are %v, want some of 200 and of 429", statuses)
	}
}

// A call that another target gets after the first was not there is complete.
func TestLLMSecondTarget(t *testing.T) {
	t.Parallel()
	provider := new(llmtest.Provider)
	s := httptest.NewServer(provider)
	t.Cleanup(s.Close)
	o := to("http://127.0.0.1:1", s.URL)
	o.Upstreams[0].LLM = &gatewayfile.LLM{}
	f := serveGateway(t, decider(t, llmRules(plenty), llmModels), o)
	for range 4 {
		got := ask(t, client(t), http.MethodPost, f.url+"/v1/chat/completions", strings.NewReader(chatCall(false, "words=2")))
		got.wants(t, 200)
	}
	if n := provider.Calls.Load(); n != 4 {
		t.Errorf("the provider has got %d calls, want 4", n)
	}
}

// A stream that has a length at the provider has none for the client, who does not get all of it.
func TestLLMStreamWithLength(t *testing.T) {
	t.Parallel()
	const event, extra = "data: {\"choices\":[{\"delta\":{}}]}\n\n", "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n"
	s := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = []string{"text/event-stream"}
		w.Header()["Content-Length"] = []string{strconv.Itoa(len(event + extra))}
		_, _ = io.WriteString(w, event+extra)
	})
	o := to(s.URL)
	o.Upstreams[0].LLM = &gatewayfile.LLM{}
	f := serveGateway(t, decider(t, llmRules(plenty), llmModels), o)
	got := ask(t, client(t), http.MethodPost, f.url+"/v1/chat/completions", strings.NewReader(chatCall(true, "")))
	if got.wants(t, http.StatusOK, "Content-Length: "); got.text != event {
		t.Errorf("the client gets %q", got.text)
	}
}

// The provider is asked as by its own client: nothing of the client's request reads the body in
// another way, or shows its key behind the body.
func TestLLMRequestHeaders(t *testing.T) {
	t.Parallel()
	seen := make(chan *http.Request, 1)
	server := plainH2Server(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		seen <- r
		_, _ = io.WriteString(w, `{}`)
	})
	o := to(server)
	o.Upstreams[0].LLM = &gatewayfile.LLM{}
	f := serveGateway(t, decider(t, llmRules(plenty), llmModels), o)
	c := plainH2(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/v1/chat/completions", io.MultiReader(strings.NewReader(chatCall(false, "&model=other"))))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Authorization", "Bearer mine")
	r.Trailer = http.Header{"X-Api-Key": {"mine"}, "X-Sum": {"1"}}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	got := next(t, seen)
	if got.Header.Get("Content-Type") != "application/json" || strings.Contains(fmt.Sprint(got.Header), "mine") || len(got.Trailer) > 0 {
		t.Errorf("the provider gets %v, behind the body %v", got.Header, got.Trailer)
	}
}

// A path by which one server would take a call for another kind of call than the gateway does is
// refused.
func TestLLMPaths(t *testing.T) {
	t.Parallel()
	f := newLLM(t, plenty, func(l *gatewayfile.LLM) { l.PassOthers = true })
	for _, path := range []string{"/v1/chat/completions;/embeddings", "/v1/chat/completions%00/embeddings", "/v1/chat/completions/..%2fembeddings", "/v1/x/..;/embeddings"} {
		ask(t, client(t), http.MethodPost, f.url+path, strings.NewReader(chatCall(false, ""))).wants(t, http.StatusBadRequest)
	}
	if seen := f.provider.Seen(); len(seen) > 0 {
		t.Errorf("the provider gets %v", seen)
	}
}
