// Package llmtest has a provider of language models for tests: it speaks the protocols of OpenAI and
// Anthropic, and knows what it has truly used, whatever it says and whoever has listened.
package llmtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Provider is an [http.Handler] that answers each call with words. The field "user" of a call (for
// Messages, "user_id" in "metadata") says in words how it behaves:
//
//	words=N      it has N words of output, which is otherwise as long as the call allows
//	pause=D      it waits before each word
//	fail=before  it refuses with the status 500 and uses nothing
//	fail=begin   it closes the connection without an answer, and uses nothing
//	fail=N       it closes the connection after N words, of which nobody hears without a stream
//	usage=none   it says nothing of usage
//	limited      it answers 429 with limits of its own
//
// It is safe for concurrent use.
type Provider struct {
	// Input and Output are the tokens that all calls have used: one for each word that was made,
	// and for each four bytes of the call. Calls is how many there were.
	Input, Output, Calls atomic.Int64
	// Key is the key that calls must show. "" is any.
	Key string

	mu   sync.Mutex // guards seen
	seen []Seen
}

// Seen is a call as the provider got it.
type Seen struct {
	Path   string
	Header http.Header
	Body   string
}

// Seen returns the calls since the last call of it, in their order.
func (p *Provider) Seen() []Seen {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := p.seen
	p.seen = nil
	return seen
}

// call is what the provider reads of a call.
type call struct {
	Model         string `json:"model"`
	Stream        bool   `json:"stream"`
	N             int    `json:"n"`
	User          string `json:"user"`
	MaxTokens     *int   `json:"max_tokens"`
	MaxCompletion *int   `json:"max_completion_tokens"`
	MaxOutput     *int   `json:"max_output_tokens"`
	Input         any    `json:"input"`
	Metadata      struct {
		UserID string `json:"user_id"`
	} `json:"metadata"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// behaviour is how a call is answered.
type behaviour struct {
	words, failAfter int
	pause            time.Duration
	fail             string
	silent, limited  bool
}

func (c *call) behaviour() behaviour {
	b := behaviour{words: 8, failAfter: -1}
	for _, most := range []*int{c.MaxTokens, c.MaxCompletion, c.MaxOutput} {
		if most != nil {
			b.words = *most
		}
	}
	for _, word := range strings.Fields(c.User + " " + c.Metadata.UserID) {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "words":
			n, _ := strconv.Atoi(value)
			b.words = min(n, b.words)
		case "pause":
			b.pause, _ = time.ParseDuration(value)
		case "fail":
			b.fail = value
			if n, err := strconv.Atoi(value); err == nil {
				b.failAfter = n
			}
		case "usage":
			b.silent = value == "none"
		case "limited":
			b.limited = true
		}
	}
	return b
}

// ServeHTTP answers a call.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	p.mu.Lock()
	if p.seen = append(p.seen, Seen{r.URL.Path, r.Header.Clone(), string(body)}); len(p.seen) > 100 {
		p.seen = p.seen[1:]
	}
	p.mu.Unlock()
	if key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") + r.Header.Get("X-Api-Key"); p.Key != "" && key != p.Key {
		http.Error(w, `{"error":{"message":"no key"}}`, http.StatusUnauthorized)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/models") {
		answer(w, map[string]any{"object": "list", "data": []any{map[string]any{"id": "m", "object": "model", "created": 1, "owned_by": "o"}}})
		return
	}
	var c call
	if err := json.Unmarshal(body, &c); err != nil {
		http.Error(w, `{"error":{"message":"not JSON"}}`, http.StatusBadRequest)
		return
	}
	b := c.behaviour()
	w.Header().Set("X-Request-Id", "req-1")
	switch {
	case b.limited:
		w.Header().Set("X-Ratelimit-Remaining-Requests", "0")
		w.Header().Set("Retry-After", "7")
		http.Error(w, `{"error":{"message":"the provider's own limit","type":"requests","code":"rate_limit_exceeded"}}`, http.StatusTooManyRequests)
		return
	case b.fail == "before":
		http.Error(w, `{"error":{"message":"overloaded","type":"server_error"}}`, http.StatusInternalServerError)
		return
	case b.fail == "begin":
		panic(http.ErrAbortHandler)
	}
	p.Calls.Add(1)
	m := made{p: p, w: w, r: r, call: &c, behaviour: b, input: (len(body) + 3) / 4}
	p.Input.Add(int64(m.input))
	w.Header().Set("X-Ratelimit-Remaining-Requests", "99999") // of the provider's account
	switch {
	case strings.HasSuffix(r.URL.Path, "/embeddings"):
		answer(w, map[string]any{"object": "list", "model": c.Model, "data": []any{map[string]any{"object": "embedding", "index": 0, "embedding": []float64{0.5, -0.25}}}, "usage": map[string]any{"prompt_tokens": m.input, "total_tokens": m.input}})
	case strings.HasSuffix(r.URL.Path, "/messages"):
		m.messages()
	case strings.HasSuffix(r.URL.Path, "/responses"):
		m.responses()
	default:
		m.chat()
	}
}

func answer(w http.ResponseWriter, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n'))
}

// made is an answer that is being made.
type made struct {
	behaviour
	p     *Provider
	w     http.ResponseWriter
	r     *http.Request
	call  *call
	input int
}

// each makes the words of the output, and counts them before anybody hears of them. A client that has
// gone is noticed only between two words.
func (m *made) each(say func(word string)) {
	for i := range m.words * max(1, m.call.N) {
		if m.failAfter == i {
			panic(http.ErrAbortHandler)
		}
		select {
		case <-m.r.Context().Done():
			panic(http.ErrAbortHandler)
		case <-time.After(m.pause):
		}
		m.p.Output.Add(1)
		say(fmt.Sprintf("w%d ", i))
	}
	if m.failAfter >= m.words {
		panic(http.ErrAbortHandler)
	}
}

// text is the whole output, made without being sent.
func (m *made) text() string {
	var b strings.Builder
	m.each(func(word string) { b.WriteString(word) })
	return b.String()
}

func (m *made) output() int { return m.words * max(1, m.call.N) }

func (m *made) event(name string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	if name != "" {
		fmt.Fprintf(m.w, "event: %s\n", name)
	}
	fmt.Fprintf(m.w, "data: %s\n\n", text)
	_ = http.NewResponseController(m.w).Flush()
}

func (m *made) chat() {
	usage := map[string]any{"prompt_tokens": m.input, "completion_tokens": m.output(), "total_tokens": m.input + m.output(), "prompt_tokens_details": map[string]any{"cached_tokens": m.input / 2}}
	if !m.call.Stream {
		v := map[string]any{"id": "c", "object": "chat.completion", "created": 1, "model": m.call.Model, "choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": m.text()}}}, "usage": usage}
		if m.silent {
			delete(v, "usage")
		}
		answer(m.w, v)
		return
	}
	asked := m.call.StreamOptions.IncludeUsage && !m.silent
	chunk := func(choices []any, usage any) {
		v := map[string]any{"id": "c", "object": "chat.completion.chunk", "created": 1, "model": m.call.Model, "choices": choices}
		if asked {
			v["usage"] = usage
		}
		m.event("", v)
	}
	m.w.Header().Set("Content-Type", "text/event-stream")
	m.each(func(word string) {
		chunk([]any{map[string]any{"index": 0, "delta": map[string]any{"content": word}, "finish_reason": nil}}, nil)
	})
	chunk([]any{map[string]any{"index": 0, "delta": map[string]any{}, "finish_reason": "stop"}}, nil)
	if asked {
		chunk([]any{}, usage)
	}
	fmt.Fprint(m.w, "data: [DONE]\n\n")
}

func (m *made) messages() {
	usage := map[string]any{"input_tokens": m.input, "output_tokens": m.output()}
	message := map[string]any{"id": "msg", "type": "message", "role": "assistant", "model": m.call.Model, "content": []any{}, "stop_reason": nil, "stop_sequence": nil, "usage": map[string]any{"input_tokens": m.input, "output_tokens": 1}}
	if !m.call.Stream {
		message["content"], message["stop_reason"], message["usage"] = []any{map[string]any{"type": "text", "text": m.text()}}, "end_turn", usage
		answer(m.w, message)
		return
	}
	m.w.Header().Set("Content-Type", "text/event-stream")
	m.event("message_start", map[string]any{"type": "message_start", "message": message})
	m.event("content_block_start", map[string]any{"type": "content_block_start", "index": 0, "content_block": map[string]any{"type": "text", "text": ""}})
	m.each(func(word string) {
		m.event("content_block_delta", map[string]any{"type": "content_block_delta", "index": 0, "delta": map[string]any{"type": "text_delta", "text": word}})
	})
	m.event("content_block_stop", map[string]any{"type": "content_block_stop", "index": 0})
	m.event("message_delta", map[string]any{"type": "message_delta", "delta": map[string]any{"stop_reason": "end_turn", "stop_sequence": nil}, "usage": map[string]any{"output_tokens": m.output()}})
	m.event("message_stop", map[string]any{"type": "message_stop"})
}

func (m *made) responses() {
	response := func(status, text string, usage any) map[string]any {
		return map[string]any{
			"id": "resp", "object": "response", "created_at": 1, "status": status, "model": m.call.Model, "parallel_tool_calls": true, "tool_choice": "auto", "tools": []any{},
			"output": []any{map[string]any{"id": "o", "type": "message", "role": "assistant", "status": status, "content": []any{map[string]any{"type": "output_text", "text": text, "annotations": []any{}}}}}, "usage": usage,
		}
	}
	usage := map[string]any{"input_tokens": m.input, "input_tokens_details": map[string]any{"cached_tokens": 0}, "output_tokens": m.output(), "output_tokens_details": map[string]any{"reasoning_tokens": 0}, "total_tokens": m.input + m.output()}
	if !m.call.Stream {
		answer(m.w, response("completed", m.text(), usage))
		return
	}
	m.w.Header().Set("Content-Type", "text/event-stream")
	n, text := 0, ""
	event := func(name string, v map[string]any) {
		v["type"], v["sequence_number"] = name, n
		n++
		m.event(name, v)
	}
	event("response.created", map[string]any{"response": response("in_progress", "", nil)})
	m.each(func(word string) {
		text += word
		event("response.output_text.delta", map[string]any{"item_id": "o", "output_index": 0, "content_index": 0, "delta": word, "logprobs": []any{}})
	})
	event("response.completed", map[string]any{"response": response("completed", text, usage)})
}
