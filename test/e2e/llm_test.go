package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/llm/llmtest"
	"github.com/headgate/headgate/test/servers"
)

// llmPolicy is the policy of these tests. Calls of the model "paced" have to wait for each other.
const llmPolicy = `
subjects: { by: api_key, table: { mine: { user: me }, capped: { user: capped }, last: { user: last } } }
deny:
  - { name: strangers, match: { user: absent } }
models:
  - { model: m, input: 1, output: 2 }
  - { model: paced, input: 1, output: 2 }
rules:
  - { name: calls, per: [user], limits: [100000 per 1h] }
  - { name: tokens, match: { user: me }, per: [user, model], counts: tokens, limits: [10000 per 1h] }
  - { name: budget, per: [user], counts: money, algorithm: fixed_window, limits: [1000000 per calendar month] }
  - { name: cap, per: [user], counts: money, algorithm: fixed_window, limits: [60000 per calendar year] }
  - { name: pace, match: { model: paced }, per: [user], limits: [1 per 1s] }
`

// llmGate is a gateway before the provider, for the clients of OpenAI and of Anthropic.
func llmGate(t *testing.T, provider string, args ...string) *gateway {
	t.Helper()
	dir := t.TempDir()
	key, file := filepath.Join(dir, "key"), filepath.Join(dir, "gateway.yml")
	text := `
upstreams:
  - { name: one, targets: ["` + provider + `"], llm: { api: openai, key_file: key } }
  - { name: other, targets: ["` + provider + `"], llm: { api: anthropic, key_file: key } }
routes:
  - { match: POST /v1/messages, upstream: other }
  - { match: /, upstream: one }
`
	for name, text := range map[string]string{key: "theirs\n", file: text} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return gate(t, append([]string{"--gateway", file, "--config", policyFile(t, llmPolicy)}, args...)...)
}

// The official clients get the same through the gateway, and through Envoy, as from the provider, and
// understand what is refused.
func TestLanguageModelClients(t *testing.T) {
	t.Parallel()
	provider := &llmtest.Provider{Key: "theirs"}
	before := httptest.NewServer(provider)
	t.Cleanup(before.Close)
	g, b := llmGate(t, before.URL, "--access-log"), startModels(t, before)
	// Each program asks all, because it takes seconds of a processor until it has read the clients.
	for _, program := range [][]string{{"python3", "testdata/llm/ask.py"}, {"node", "testdata/llm/ask.mjs"}} {
		cmd := command(t, program[0], program[1], before.URL, "theirs", "answers", g.url, "mine", "refusals", b.base, "mine", "refusals")
		cmd.Env = append(os.Environ(), "PYTHONPATH="+tool(t, "llm-clients-1"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", program, err, out)
		}
		all := strings.Split(string(out), "\n\n")
		if len(all) != 4 || strings.Count(all[0], "\n") != 12 {
			t.Fatalf("%s\n%s", program, out)
		}
		for i, by := range []string{"the gateway", "Envoy"} {
			refusals, same := strings.CutPrefix(all[i+1], all[0]+"\n")
			if !same {
				t.Errorf("%s, by %s: got\n%s\ndirectly\n%s", program, by, all[i+1], all[0])
			}
			for _, want := range []string{
				`["large",["RateLimitError",429,`, `["large messages",["RateLimitError",429,`,
				`["no price",["BadRequestError",400,`, `["no price for messages",["BadRequestError",400,`,
				`["stranger",["PermissionDeniedError",403,`, `["paced","answered"]`, `It never fits`,
			} {
				if !strings.Contains(refusals, want) {
					t.Errorf("%s, by %s: refusals do not have %s:\n%s", program, by, want, refusals)
				}
			}
		}
	}
	// The program keeps nothing of what is said, however much it tells of the calls.
	told := g.logged() + g.get(t, "/metrics").text
	if !strings.Contains(told, "/v1/messages") || strings.Contains(told, "Hello") || strings.Contains(told, "w0 w1") {
		t.Errorf("what was said is in the log or the metrics, or the calls are not:\n%s", told)
	}
	b.charges(t, provider)
	b.holdsCap(t, provider)
	b.loses(t, before)
}

// A cap of money holds over three processes on one Redis, with clients that leave at any event, and a
// process that is killed with calls under way: what the provider has counted is no more than the cap,
// and what is charged is no less than that.
func TestLanguageModelCap(t *testing.T) {
	t.Parallel()
	provider := new(llmtest.Provider)
	before := httptest.NewServer(provider)
	t.Cleanup(func() {
		before.CloseClientConnections()
		before.Close()
	})
	store := servers.Start(t, servers.Redis)
	const limit = 60_000 // units of money: an input token costs 1, one of output 2
	policy := policyFile(t, `
models: [{ model: m, input: 1, output: 2 }]
rules:
  - { name: budget, per: all, counts: money, algorithm: fixed_window, limits: [60000 per calendar year] }
`)
	file := filepath.Join(t.TempDir(), "gateway.yml")
	if err := os.WriteFile(file, []byte("upstreams: [{ name: p, targets: [\""+before.URL+"\"], llm: { api: compatible } }]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var gates []*gateway
	for range 3 {
		gates = append(gates, gate(t, "--gateway", file, "--config", policy, "--store", patiently(store.URL()), "--on-store-error", "deny"))
	}
	client := &http.Client{Timeout: within, Transport: &http.Transport{MaxIdleConnsPerHost: 100, MaxConnsPerHost: 100}}
	t.Cleanup(client.CloseIdleConnections)
	var passed, denied atomic.Int64
	call := func(i int) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		user := []string{"words=40 pause=1ms", "words=3", "fail=4", "usage=none", "fail=before"}[i%5]
		body := fmt.Sprintf(`{"model":"m","max_tokens":40,"stream":%v,"user":"%s","messages":[]}`, i%4 != 0, user)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, gates[i%3].url+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		res, err := client.Do(r)
		if err != nil {
			return // of the process that was killed
		}
		defer res.Body.Close()
		switch res.StatusCode {
		case http.StatusOK:
			passed.Add(1)
		case http.StatusTooManyRequests:
			denied.Add(1)
		}
		if i%7 == 1 {
			_, _ = io.ReadFull(res.Body, make([]byte, 150*(i%40)))
			cancel()
		}
		_, _ = io.Copy(io.Discard, res.Body)
	}
	var wait sync.WaitGroup
	for i := range 600 {
		wait.Go(func() { call(i) })
		if i == 200 {
			until(t, "calls are under way", func() bool { return passed.Load() > 30 })
			if err := gates[0].cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	wait.Wait()
	for _, g := range gates[1:] {
		until(t, "all calls have ended", func() bool {
			return strings.Contains(g.get(t, "/metrics").text, "\nheadgate_gateway_requests_in_flight 0\n")
		})
	}
	// The rest of the budget can be used, up to less than a call may need.
	const body = `{"model":"m","max_tokens":40,"messages":[]}`
	for status := http.StatusOK; status != http.StatusTooManyRequests; {
		res, err := client.Post(gates[1].url+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body) // the status says enough
		_ = res.Body.Close()
		if status = res.StatusCode; status != http.StatusOK && status != http.StatusTooManyRequests {
			t.Fatalf("%d %s", status, text)
		}
	}
	state := gates[1].post(t, "/v1/peek", `{"checks":[{"rule":"budget","key":""}]}`)
	left := parse(t, state.text).Decisions[0].Remaining
	input, output := provider.Input.Load(), provider.Output.Load()
	// Half of the input comes from the provider's cache, for the same price.
	used := input + 2*output
	if used > limit || limit-left < used || left >= int64(len(body))+2*40 {
		t.Errorf("the provider has counted %d, charged are %d, and the cap is %d", used, limit-left, limit)
	}
	if passed.Load() < 100 {
		t.Errorf("%d calls have passed, and %d were denied", passed.Load(), denied.Load())
	}
}
