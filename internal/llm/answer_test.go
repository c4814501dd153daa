package llm

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/headgate/headgate/policy/models"
)

// The answers of providers, as far as they matter here.
const (
	chunk     = `data: {"id":"c","choices":[{"delta":{"content":"Hi \"usage\": {"}}]}` + "\n\n"
	nullChunk = `data: {"id":"c","choices":[{"delta":{"content":"Hi \"usage\": {"}}],"usage":null}` + "\n\n"
	extra     = `data: {"id":"c","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":4}}}` + "\n\n"
	done      = "data: [DONE]\n\n"

	anthropicStart = "event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,\"cache_creation_input_tokens\":5,\"cache_read_input_tokens\":20,\"output_tokens\":1}}}\r\n\r\n"
	anthropicDelta = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"x\"}}\n\n"
	anthropicEnd   = "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":7}}\n\n"

	anthropicStop = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"

	responsesBegin = "event: response.created\ndata: {\"response\":{\"usage\":null}}\n\n"
	responsesEnd   = "event: response.completed\ndata: {\"response\":{\"output\":[{\"usage\":{\"input_tokens\":1}}],\"usage\":{\"input_tokens\":10,\"input_tokens_details\":{\"cached_tokens\":3},\"output_tokens\":5}}}\n\n"
)

var chatUsage = models.Usage{Input: 10, CachedInput: 4, Output: 2}

// metered reads an answer through a meter, in pieces of the given size.
func throughMeter(t testing.TB, p Protocol, request, answer string, size int, cut error) (*Meter, string) {
	t.Helper()
	c, err := Read(p, []byte(request))
	if err != nil {
		t.Fatal(err)
	}
	from := io.Reader(strings.NewReader(answer))
	if cut != nil {
		from = io.MultiReader(from, iotest.ErrReader(cut))
	}
	m := c.Meter(c.Stream)
	body := m.Read(io.NopCloser(from))
	var got bytes.Buffer
	for piece := make([]byte, size); ; {
		n, err := body.Read(piece)
		got.Write(piece[:n])
		if err != nil {
			return m, got.String()
		}
	}
}

// Usage is found in every answer, however it is cut into pieces, and the client gets what it would
// get without the gateway.
func TestMeter(t *testing.T) {
	t.Parallel()
	const whole = `{"model":"m","max_tokens":1}`
	const stream = `{"model":"m","max_tokens":1,"stream":true}`
	const asked = `{"model":"m","max_tokens":1,"stream":true,"stream_options":{"include_usage":true}}`
	for _, tt := range []struct {
		what            string
		p               Protocol
		request, answer string
		want            string // "" if it is the answer
		usage           models.Usage
		complete        bool
		events          int64
	}{
		{"chat", Chat, whole, `{"choices":[{"usage":{"prompt_tokens":1}}],"usage":{"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}},"x":1}` + "\n", "", chatUsage, true, 0},
		{"without usage", Chat, whole, `{"choices":[]}`, "", models.Usage{}, false, 0},
		{"no JSON", Chat, whole, `}}]]{{usage"`, "", models.Usage{}, false, 0},
		{"usage that nobody uses", Chat, whole, `{"usage":{"prompt_tokens":-1,"completion_tokens":2}}`, "", models.Usage{}, false, 0},
		{"more cached than there is", Chat, whole, `{"usage":{"prompt_tokens":1,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}`, "", models.Usage{}, false, 0},
		{"usage in texts", Chat, whole, `{"usage":{"prompt_tokens":"1","completion_tokens":"2"}}`, "", models.Usage{}, false, 0},
		{"embeddings", Embeddings, whole, `{"data":[{"embedding":[1,2]}],"usage":{"prompt_tokens":8,"total_tokens":8}}`, "", models.Usage{Input: 8}, true, 0},
		{"a stream that did not ask", Chat, stream, chunk + chunk + extra + done, chunk + chunk + done, chatUsage, true, 2},
		{"one with empty usage", Chat, stream, nullChunk + nullChunk + extra + done, chunk + chunk + done, chatUsage, true, 2},
		{"one that asked", Chat, asked, nullChunk + extra + done, "", chatUsage, true, 1},
		{"one that was cut off", Chat, stream, chunk + chunk, "", models.Usage{}, false, 2},
		{"half an event", Chat, stream, chunk + chunk[:20], "", models.Usage{}, false, 1},
		{"comments and other fields", Chat, stream, ": hello\n\nid: 7\nretry: 1\n\n" + chunk + extra + done, ": hello\n\nid: 7\nretry: 1\n\n" + chunk + done, chatUsage, true, 1},
		{"without spaces, with CRLF", Chat, stream, strings.NewReplacer("\n", "\r\n", "data: ", "data:").Replace(chunk + extra + done), strings.NewReplacer("\n", "\r\n", "data: ", "data:").Replace(chunk + done), chatUsage, true, 1},
		{"with CR", Chat, stream, strings.ReplaceAll(nullChunk+extra+done, "\n", "\r"), strings.ReplaceAll(chunk+done, "\n", "\r"), chatUsage, true, 1},
		{"with ends of all kinds", Chat, stream, strings.TrimSuffix(chunk, "\n") + "\r\n" + strings.TrimSuffix(extra, "\n\n") + "\r\n\r\n" + chunk + strings.ReplaceAll(done, "\n", "\r"), strings.TrimSuffix(chunk, "\n") + "\r\n" + chunk + strings.ReplaceAll(done, "\n", "\r"), chatUsage, true, 2},
		{"of which an event has several lines", Chat, stream, "data: {\"choices\":[],\ndata: \"usage\":{\"prompt_tokens\":10,\r\ndata:\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n" + done, done, chatUsage, true, 0},
		{"with spaces in its JSON", Chat, stream, strings.NewReplacer(`,"usage":null`, `, "usage" : null`).Replace(nullChunk) + extra + done, chunk + done, chatUsage, true, 1},
		{"with the empty usage first", Chat, stream, `data: {"usage": null, "choices":[{}]}` + "\n\n" + extra + done, `data: {"choices":[{}]}` + "\n\n" + done, chatUsage, true, 1},
		{"a large event", Chat, stream, "data: {\"choices\":[{\"delta\":\"" + strings.Repeat("x", 3*maxHeld) + "\"}]}\n\n" + extra + done, "data: {\"choices\":[{\"delta\":\"" + strings.Repeat("x", 3*maxHeld) + "\"}]}\n\n" + done, chatUsage, true, 1},
		{"usage in each event", Chat, stream, `data: {"choices":[{}],"usage":{"prompt_tokens":10,"completion_tokens":1}}` + "\n\n" + extra + done, `data: {"choices":[{}],"usage":{"prompt_tokens":10,"completion_tokens":1}}` + "\n\n" + done, chatUsage, true, 0},
		{"anthropic", Messages, stream, anthropicStart + anthropicDelta + anthropicDelta + anthropicEnd + anthropicStop, "", models.Usage{Input: 35, CachedInput: 20, CacheWrite: 5, Output: 7}, true, 2},
		{"anthropic, what is null was said before", Messages, stream, anthropicStart + `data: {"usage":{"input_tokens":null,"output_tokens":7}}` + "\n\n", "", models.Usage{Input: 35, CachedInput: 20, CacheWrite: 5, Output: 7}, true, 0},
		{"anthropic, cut off", Messages, stream, anthropicStart + anthropicDelta, "", models.Usage{Input: 35, CachedInput: 20, CacheWrite: 5, Output: 1}, false, 1},
		{"anthropic, whole", Messages, whole, `{"type":"message","usage":{"input_tokens":3,"output_tokens":4}}`, "", models.Usage{Input: 3, Output: 4}, true, 0},
		{"responses", Responses, stream, responsesBegin + responsesEnd, "", models.Usage{Input: 10, CachedInput: 3, Output: 5}, true, 1},
		{"responses, cut off", Responses, stream, responsesBegin, "", models.Usage{}, false, 1},
		{"responses, whole", Responses, whole, `{"usage":{"input_tokens":3,"output_tokens":4}}`, "", models.Usage{Input: 3, Output: 4}, true, 0},
	} {
		want := tt.want
		if want == "" {
			want = tt.answer
		}
		for _, size := range []int{1, 2, 3, 7, 64, 1 << 20} {
			m, got := throughMeter(t, tt.p, tt.request, tt.answer, size, nil)
			u, complete := m.Usage()
			if got != want || u != tt.usage || complete != tt.complete || m.Events != tt.events {
				t.Errorf("%s, in pieces of %d: %+v, complete %v, %d events, want %+v, %v, %d; the client gets\n%.300s\nwant\n%.300s", tt.what, size, u, complete, m.Events, tt.usage, tt.complete, tt.events, got, want)
			}
		}
	}
	// An answer that breaks off is not complete, even if it has usage.
	for _, tt := range []struct {
		p               Protocol
		request, answer string
		complete        bool
	}{
		{Chat, whole, `{"usage":{"prompt_tokens":1,"completion_tokens":2},"x":`, false},
		{Chat, stream, `data: {"choices":[{}],"usage":{"prompt_tokens":10,"completion_tokens":1}}` + "\n\n", false},
		{Chat, stream, extra + done, true},
		{Messages, stream, anthropicStart + anthropicEnd, false}, // more may be said
		{Messages, stream, anthropicStart + anthropicEnd + anthropicStop, true},
		{Messages, stream, strings.ReplaceAll(anthropicStart+anthropicEnd+anthropicStop, "\n", "\r"), true},
		{Responses, stream, responsesEnd, true},
		{Responses, stream, strings.Replace(responsesEnd, `"response":{`, `"response":{"status":"in_progress",`, 1), false},
		{Responses, stream, strings.Replace(responsesEnd, `"response":{`, `"response":{"status":"incomplete",`, 1), true},
	} {
		if m, _ := throughMeter(t, tt.p, tt.request, tt.answer, 1<<20, io.ErrUnexpectedEOF); func() bool { _, c := m.Usage(); return c }() != tt.complete {
			t.Errorf("%s that breaks off: complete is not %v", tt.answer, tt.complete)
		}
	}
}

// The pieces of an answer do not matter, nothing is added to it, and what a client did not ask to be
// changed is not.
func FuzzMeter(f *testing.F) {
	for _, seed := range []string{chunk + extra + done, nullChunk + extra, anthropicStart + anthropicEnd, responsesBegin + responsesEnd, "data:\n\r\n:\n", strings.ReplaceAll(nullChunk+extra+chunk+done, "\n", "\r\n"), strings.ReplaceAll(chunk+extra, "\n", "\r") + "\n"} {
		f.Add([]byte(seed), uint8(3), uint8(0))
		f.Add([]byte(seed), uint8(1), uint8(3))
	}
	f.Fuzz(func(t *testing.T, answer []byte, size, protocol uint8) {
		p := Protocol(protocol % uint8(protocols))
		request := `{"model":"m","max_tokens":1,"stream":true}`
		one, whole := throughMeter(t, p, request, string(answer), len(answer)+1, nil)
		two, pieces := throughMeter(t, p, request, string(answer), int(size)+1, nil)
		if whole != pieces || one.found.text() != two.found.text() || one.Events != two.Events {
			t.Fatalf("%q: in pieces %q, at once %q", answer, pieces, whole)
		}
		if len(whole) > len(answer) || p != Chat && whole != string(answer) {
			t.Fatalf("%q becomes %q", answer, whole)
		}
	})
}

func (u *usage) text() string {
	number := func(n *int64) string {
		if n == nil {
			return "-"
		}
		return fmt.Sprint(*n)
	}
	return fmt.Sprint(number(u.Prompt), number(u.Completion), number(u.Input), number(u.Output), u.PromptDetails, u.InputDetails, u.CacheRead, u.CacheCreation)
}
