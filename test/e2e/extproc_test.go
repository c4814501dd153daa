package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/llm/llmtest"
)

// models is an Envoy before a provider of language models, with the server that it asks by ext_proc.
type models struct {
	*envoy
	server *server
	client *http.Client
}

// startModels starts both with the example's configuration.
func startModels(t *testing.T, provider *httptest.Server) *models {
	t.Helper()
	at, err := url.Parse(provider.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, "--grpc-listen", "127.0.0.1:0", "--config", policyFile(t, llmPolicy))
	m := &models{server: s, client: &http.Client{Timeout: within, Transport: &http.Transport{MaxIdleConnsPerHost: 200}}}
	t.Cleanup(m.client.CloseIdleConnections)
	m.envoy = startEnvoyWith(t, "llm.yaml", "8081", grpcAddress(t, s), "port_value: 8889", "port_value: "+at.Port(), "message_timeout: 5s", "message_timeout: 50s")
	return m
}

// call sends a call with a key. The client leaves after that many bytes of the answer,
// unless that is 0. It returns the status, or 0 if there was no answer.
func (m *models) call(t *testing.T, key string, body io.Reader, leaves int, headers ...string) int {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.base+"/v1/chat/completions", body)
	if err != nil {
		t.Error(err)
		return 0
	}
	r.Header.Set("Authorization", "Bearer "+key)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := m.client.Do(r)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	if leaves > 0 {
		_, _ = io.ReadFull(res.Body, make([]byte, leaves))
		return res.StatusCode
	}
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// left is what a user's cap has left, when no request is under way any more.
func (m *models) left(t *testing.T, user string) int64 {
	t.Helper()
	until(t, "all requests have ended", func() bool {
		return strings.Contains(m.server.get(t, "/metrics").text, "\nheadgate_ext_proc_streams 0\n")
	})
	return parse(t, m.server.post(t, "/v1/peek", `{"checks":[{"rule":"cap","key":"`+user+`"}]}`).text).Decisions[0].Remaining
}

// truth is what the provider has counted, in units of money.
func truth(p *llmtest.Provider) int64 { return p.Input.Load() + 2*p.Output.Load() }

// charges holds what single calls are charged against what the provider has counted.
func (m *models) charges(t *testing.T, provider *llmtest.Provider) {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	const plain = `{"model":"m","max_tokens":40,"user":"words=3","stream":true,"messages":[]}`
	if _, err := w.Write([]byte(plain)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, body string
		leaves     int
		headers    []string
		status     int  // 0 is any
		exact      bool // it is charged what the provider has counted; otherwise more
	}{
		{name: "an answer", body: `{"model":"m","max_tokens":40,"user":"words=3","messages":[]}`, status: 200, exact: true},
		{name: "a stream", body: plain, status: 200, exact: true},
		{name: "a call in gzip", body: packed.String(), headers: []string{"Content-Encoding", "gzip"}, status: 200, exact: true},
		{name: "a refusal of the provider", body: `{"model":"m","max_tokens":40,"user":"fail=before","messages":[]}`, status: 500, exact: true},
		{name: "a denial of the provider", body: `{"model":"m","max_tokens":40,"user":"limited","messages":[]}`, status: 429, exact: true},
		{name: "an answer without usage", body: `{"model":"m","max_tokens":40,"user":"usage=none words=3","messages":[]}`, status: 200},
		{name: "a connection that ends before the answer", body: `{"model":"m","max_tokens":40,"user":"fail=begin","messages":[]}`, status: 503},
		{name: "a stream that breaks", body: `{"model":"m","max_tokens":40,"user":"fail=4","stream":true,"messages":[]}`},
		{name: "a client that leaves", body: `{"model":"m","max_tokens":40,"user":"pause=20ms","stream":true,"messages":[]}`, leaves: 1, status: 200},
		{name: "a call that is not JSON", body: `{"model"`, status: 400, exact: true},
		{name: "a call without a body", status: 400, exact: true},
		{name: "a call that is too large for the cap", body: plain[:len(plain)-1] + `,"x":"` + strings.Repeat("x", 2<<20) + `"}`, status: 429, exact: true},
	} {
		before, counted := m.left(t, "capped"), truth(provider)
		if got := m.call(t, "capped", strings.NewReader(tt.body), tt.leaves, tt.headers...); got != tt.status && tt.status != 0 {
			t.Errorf("%s: status %d, want %d", tt.name, got, tt.status)
		}
		charged, used := before-m.left(t, "capped"), truth(provider)-counted
		if charged < used || tt.exact != (charged == used) {
			t.Errorf("%s: charged %d, the provider has counted %d", tt.name, charged, used)
		}
	}
	// Envoy answers before the client has said all.
	rest, end := io.Pipe()
	defer end.Close()
	if got := m.call(t, "capped", io.MultiReader(strings.NewReader(strings.Repeat(" ", 17<<20)), rest), 0); got != http.StatusRequestEntityTooLarge {
		t.Errorf("a call that is too large for Envoy: status %d", got)
	}
}

// holdsCap has 200 clients at once use up the cap, and some leave. What the provider has counted is no
// more than the cap, and what is charged is no less.
func (m *models) holdsCap(t *testing.T, provider *llmtest.Provider) {
	t.Helper()
	before, counted := m.left(t, "capped"), truth(provider)
	var denied atomic.Int64
	var wait sync.WaitGroup
	for range 200 {
		wait.Go(func() {
			for i := 0; i < 100 && denied.Load() < 400; i++ {
				user := []string{"words=40 pause=1ms", "words=3", "fail=4", "usage=none", "fail=before"}[i%5]
				body := fmt.Sprintf(`{"model":"m","max_tokens":40,"stream":%v,"user":"%s","messages":[]}`, i%4 != 0, user)
				leaves := 0
				if i%7 == 1 {
					leaves = 1 + 150*(i%40)
				}
				if m.call(t, "capped", strings.NewReader(body), leaves) == http.StatusTooManyRequests {
					denied.Add(1)
				}
			}
		})
	}
	wait.Wait()
	left, used := m.left(t, "capped"), truth(provider)-counted
	if used > before || before-left < used || denied.Load() < 400 {
		t.Errorf("the provider has counted %d, charged are %d of %d, and %d calls were denied", used, before-left, before, denied.Load())
	}
}

// loses ends the provider, and then Headgate.
func (m *models) loses(t *testing.T, provider *httptest.Server) {
	t.Helper()
	before := m.left(t, "last")
	provider.CloseClientConnections()
	provider.Close()
	const body = `{"model":"m","max_tokens":1,"user":"words=1","messages":[]}`
	if got := m.call(t, "last", strings.NewReader(body), 0); got != 503 || m.left(t, "last") != before {
		t.Errorf("without a provider: status %d, charged %d", got, before-m.left(t, "last"))
	}
	if code := m.server.stop(t); code != 0 {
		t.Errorf("the server ended with %d", code)
	}
	if got := m.call(t, "last", strings.NewReader(body), 0); got != 500 {
		t.Errorf("without Headgate: status %d", got)
	}
}
