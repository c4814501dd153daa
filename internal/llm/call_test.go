package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/policy/models"
)

const ask = `"messages":[{"role":"user","content":"hi"}]`

// model is what is known of the model of most tests.
var model = models.Model{Name: "m", MaxOutput: 100}

// What a call may use at most follows from its bytes, what it declares, and its model.
func TestEstimate(t *testing.T) {
	t.Parallel()
	picture := strings.Repeat("A", 5000)
	known := models.Model{Name: "m", MaxInput: 10_000, MaxOutput: 100, Image: 700}
	for _, tt := range []struct {
		what          string
		p             Protocol
		body          string
		m             models.Model
		input, output int64 // an input of -1-n: n more than there are bytes
		stream        bool
	}{
		{"the default output", Chat, `{"model":"m",` + ask + `}`, model, -1, 100, false},
		{"declared", Chat, `{"model":"m","max_tokens":7,` + ask + `}`, model, -1, 7, false},
		{"the larger one counts", Chat, `{"model":"m","max_tokens":7,"max_completion_tokens":9,` + ask + `}`, model, -1, 9, false},
		{"several answers", Chat, `{"model":"m","max_tokens":7,"n":3,"stream":true,` + ask + `}`, model, -1, 21, true},
		{"too much is reduced", Chat, `{"model":"m","max_tokens":1000,` + ask + `}`, model, -1, 100, false},
		{"null is nothing", Chat, `{"model":"m","max_tokens":null,"n":null,"stream":null,"stream_options":null,` + ask + `}`, model, -1, 100, false},
		{"tools", Chat, `{"model":"m","tools":[{}],"max_tokens":1}`, model, -1 - toolTokens, 1, false},
		{"functions", Chat, `{"model":"m","tools":[{"type":"function","function":{"type":"x"}},{"name":"f","type":null},{"type":"custom"}],"max_tokens":1}`, model, -1 - toolTokens, 1, false},
		{"the provider's own tools", Messages, `{"model":"m","tools":[{"type":"computer_20250124","name":"computer"},{"type":"bash_20250124","name":"bash"}],"max_tokens":1}`, model, -1 - 3*toolTokens, 1, false},
		{"characters that grow", Chat, `{"model":"m","max_tokens":1,"x":"` + strings.Repeat("\U0001d160", 100) + "\ufb40\u0344\u0958\u00e9\u6f22\u0915" + `\ud834\udd60"}`, model, -1 - 800 - 3 - 2 - 3, 1, false},
		{"no more than the model accepts", Chat, `{"model":"m","max_tokens":1,"user":"` + picture + picture + picture + `"}`, known, 10_000, 1, false},
		{"responses", Responses, `{"model":"m","input":"hi","max_output_tokens":20}`, model, -1, 20, false},
		{"a conversation that the provider keeps", Responses, `{"model":"m","previous_response_id":"r","max_output_tokens":20}`, known, 10_000, 20, false},
		{"embeddings have no output", Embeddings, `{"model":"m","input":["a","b"],"max_tokens":8}`, model, -1, 0, false},
		{"messages", Messages, `{"model":"m","max_tokens":30,` + ask + `}`, model, -1, 30, false},
		{"messages for the cache", Messages, `{"model":"m","max_tokens":0,` + ask + `}`, model, -1, 0, false},
		{"a picture by its address", Chat, `{"model":"m","max_tokens":1,"messages":[{"content":[{"type":"image_url","image_url":{"url":"https://x/y"}}]}]}`, known, -1 - 700, 1, false},
		{"one in the body", Chat, `{"model":"m","max_tokens":1,"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + picture + `"}}]}]}`, known, 99 + 700, 1, false},
		{"one for Anthropic", Messages, `{"model":"m","max_tokens":1,"messages":[{"content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + picture + `"}}]}]}`, known, 134 + 700, 1, false},
		{"a text that says it is one", Messages, `{"model":"m","max_tokens":1,"messages":[{"content":[{"type":"image","source":{"type":"base64","media_type":"text/plain","data":"` + picture + `"}}]}]}`, known, -1 - 700, 1, false},
		{"a picture in the tools is text", Chat, `{"model":"m","max_tokens":1,"tools":[{"url":"data:image/png,` + picture + `"}]}`, known, -1 - toolTokens, 1, false},
		{"an escaped type", Chat, `{"model":"m","max_tokens":1,"messages":[{"content":[{"type":"im\u0061ge_url","image_url":{"url":"https://x/y"}}]}]}`, known, -1 - 700, 1, false},
		{"more pictures than the model accepts", Chat, `{"model":"m","max_tokens":1,"messages":[{"content":[` + strings.Repeat(`{"type":"image_url"},`, 20) + `{}]}]}`, known, 10_000, 1, false},
		{"a part without a type", Chat, `{"model":"m","max_tokens":1,"messages":[{"content":[{"image_url":"https://x/y"},{"type":"text","image_url":null}]}]}`, known, -1 - 700, 1, false},
		{"one in the result of a tool", Messages, `{"model":"m","max_tokens":1,"messages":[{"content":[{"type":"tool_result","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + picture + `"}}]}]}]}`, known, 169 + 700, 1, false},
		{"one in the result of a function", Responses, `{"model":"m","max_output_tokens":1,"input":[{"type":"function_call_output","output":[{"type":"input_image","image_url":"data:image/png;base64,` + picture + `"}]}]}`, known, 126 + 700, 1, false},
		{"a text for a tool that looks like one", Messages, `{"model":"m","max_tokens":1,"messages":[{"content":[{"type":"tool_use","input":{"url":"data:image/` + picture + `"}}]}]}`, known, -1, 1, false},
		{"one that looks much like one", Messages, `{"model":"m","max_tokens":1,"messages":[{"content":[{"type":"tool_use","input":{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + picture + `"}}}]}]}`, known, -1 - 700, 1, false},
		{"a film", Chat, `{"model":"m","max_tokens":1,"messages":[{"content":[{"video_url":{"url":"https://x/y"}}]}]}`, known, 10_000, 1, false},
		{"a file", Chat, `{"model":"m","max_tokens":1,"messages":[{"content":[{"type":"file","file":{"file_id":"f"}}]}]}`, known, 10_000, 1, false},
	} {
		c, err := Read(tt.p, []byte(tt.body))
		if err != nil {
			t.Errorf("%s: %v", tt.what, err)
			continue
		}
		want := models.Usage{Model: "m", Input: tt.input, Output: tt.output}
		if want.Input < 0 {
			want.Input = int64(len(tt.body)) - 1 - tt.input
		}
		if got, err := c.Estimate(&tt.m, true); err != nil || got != want || c.Stream != tt.stream {
			t.Errorf("%s: estimated %+v, %v, want %+v", tt.what, got, err, want)
		}
	}
}

// What is ambiguous or absurd is refused, and the refusal names the field.
func TestMistakes(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	keys := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(`"k` + strconv.Itoa(i) + `":1,`)
		}
		return b.String()
	}
	if _, err := Read(Chat, []byte(`{`+keys(MaxKeys-1)+`"model":"m"}`)); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct {
		p           Protocol
		body, field string
		want        string
	}{
		{Chat, "{\"model\":\"\xff\"}", "", "not UTF-8"},
		{Chat, `{"model":"m"`, "", "not JSON"},
		{Chat, `["m"]`, "", "not an object"},
		{Chat, ``, "", "not JSON"},
		{Chat, `{}`, "model", "must be a text"},
		{Chat, `{"model":""}`, "model", "must be a text"},
		{Chat, `{"model":7}`, "model", "must be a text"},
		{Chat, `{"model":"a","model":"b"}`, "model", "twice"},
		{Chat, `{"model":"a","mod\u0065l":"b"}`, "model", "twice"},
		{Chat, `{"model":"a","max_tokens":1,"max_tokens":2}`, "max_tokens", "twice"},
		{Chat, `{"model":"a","messages":[{"content":"a","content":"b"}]}`, "content", "twice"},
		{Chat, `{` + keys(40) + `"model":"a","k39":1}`, "k39", "twice"},
		{Chat, `{` + keys(MaxKeys) + `"model":"m"}`, "", "more than 10000 keys"},
		{Chat, `{"model":"a","Max_Tokens":1}`, "Max_Tokens", "some servers take for"},
		{Chat, `{"model":"a","max_toKens":1}`, "max_toKens", "some servers take for"},
		{Chat, `{"model":"a","max_tokens":"1"}`, "max_tokens", "whole number from 1 to 1000000000"},
		{Chat, `{"model":"a","max_tokens":0}`, "max_tokens", "whole number from 1"},
		{Responses, `{"model":"a","max_output_tokens":0}`, "max_output_tokens", "whole number from 1"},
		{Chat, `{"model":"a","max_tokens":-1}`, "max_tokens", "whole number"},
		{Chat, `{"model":"a","max_tokens":1.0}`, "max_tokens", "whole number"},
		{Chat, `{"model":"a","max_tokens":1e3}`, "max_tokens", "whole number"},
		{Chat, `{"model":"a","max_tokens":99999999999999999999}`, "max_tokens", "whole number"},
		{Chat, `{"model":"a","n":1000000000}`, "n", "from 1 to 128"},
		{Chat, `{"model":"a","n":0}`, "n", "from 1 to 128"},
		{Chat, `{"model":"a","stream":"true"}`, "stream", "true or false"},
		{Chat, `{"model":"a","stream_options":7}`, "stream_options", "an object"},
		{Chat, `{"model":"a","stream_options":{"include_usage":1}}`, "stream_options.include_usage", "true or false"},
		{Chat, `{"model":"a","stream_options":{"Include_Usage":false}}`, "stream_options.include_usage", "written like that"},
		{Chat, `{"model":"a","x":` + deep(MaxDepth) + `}`, "", "deeper than 200"},
		{Chat, `{"model":"a","x":` + strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth) + `}`, "", "deeper than 200"},
		{Responses, `{"model":"a","background":true}`, "background", "not possible here"},
	} {
		_, err := Read(tt.p, []byte(tt.body))
		var wrong *CallError
		if !errors.As(err, &wrong) || wrong.Field != tt.field || !strings.Contains(wrong.Text, tt.want) {
			t.Errorf("%.80s: %+v, want %q for %q", tt.body, err, tt.want, tt.field)
		}
	}
	for _, tt := range []struct {
		p    Protocol
		body string
		m    models.Model
		want string
	}{
		{Chat, `{"model":"a"}`, models.Model{Name: "a"}, "Say how much output the call may have, in max_completion_tokens"},
		{Responses, `{"model":"a"}`, models.Model{Name: "a"}, "in max_output_tokens"},
		{Chat, `{"model":"a","max_tokens":101}`, model, "must be at most 100 for the model"},
		{Chat, `{"model":"a","max_tokens":900000000,"n":2}`, models.Model{Name: "a"}, "1800000000 of output"},
		{Responses, `{"model":"a","conversation":"c","max_output_tokens":1}`, model, "how much input the model \"m\" accepts (max_input)"},
		{Chat, `{"model":"a","max_tokens":1,"messages":[{"content":[{"type":"image_url"}]}]}`, model, "The call has an image"},
	} {
		c, err := Read(tt.p, []byte(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		var wrong *CallError
		if _, err := c.Estimate(&tt.m, false); !errors.As(err, &wrong) || !strings.Contains(wrong.Text, tt.want) {
			t.Errorf("%s: %v, want %q", tt.body, err, tt.want)
		}
	}
}

// The body is the client's, but for what has to be put in.
func TestBody(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		p          Protocol
		api        API
		model      string
		most       int64
		body, want string // want is "" if the body stays
	}{
		{Chat, OpenAI, "m", 5, ` {"model": "m", "max_tokens":5, "x": [1,  2]} `, ""},
		{Chat, OpenAI, "m", 5, `{"model":"m"}`, `{"max_completion_tokens":5,"model":"m"}`},
		{Chat, Compatible, "m", 5, `{"model":"m","max_completion_tokens":5}`, `{"max_tokens":5,"model":"m","max_completion_tokens":5}`},
		{Chat, OpenAI, "m", 5, `{"model":"m","max_tokens": 9, "max_completion_tokens":null}`, `{"model":"m","max_tokens": 5, "max_completion_tokens":null}`},
		{Chat, OpenAI, "real\"", 5, `{"max_tokens":5,"model":"m"}`, `{"max_tokens":5,"model":"real\""}`},
		{Chat, OpenAI, "m", 5, `{"model":"m","max_tokens":5,"stream":true}`, `{"stream_options":{"include_usage":true},"model":"m","max_tokens":5,"stream":true}`},
		{Chat, OpenAI, "m", 5, `{"model":"m","max_tokens":5,"stream":true,"stream_options":{"include_usage":true}}`, ""},
		{Chat, OpenAI, "m", 5, `{"model":"m","max_tokens":5,"stream":true,"stream_options":{ "include_usage": false, "x":{"y":1}}}`, `{"model":"m","max_tokens":5,"stream":true,"stream_options":{"include_usage":true,"x":{"y":1}}}`},
		{Chat, OpenAI, "m", 5, `{"model":"m","max_tokens":5,"stream_options":null,"stream":true}`, `{"model":"m","max_tokens":5,"stream_options":{"include_usage":true},"stream":true}`},
		{Responses, OpenAI, "m", 5, `{"model":"m","stream":true}`, `{"max_output_tokens":5,"model":"m","stream":true}`},
		{Embeddings, OpenAI, "m", 0, `{"model":"m","input":"x"}`, ""},
		{Messages, Anthropic, "m", 5, `{"model":"m","max_tokens":6}`, `{"model":"m","max_tokens":5}`},
	} {
		c, err := Read(tt.p, []byte(tt.body))
		if err != nil {
			t.Fatalf("%s: %v", tt.body, err)
		}
		want := tt.want
		if want == "" {
			want = tt.body
		}
		if got := string(c.Body(tt.api, tt.model, tt.most)); got != want || !json.Valid([]byte(got)) {
			t.Errorf("%s becomes %s, want %s", tt.body, got, want)
		}
	}
}

// Whatever the body is, it is refused, or the provider gets JSON that asks for what was estimated.
func FuzzCall(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","max_tokens":7,"n":2,"stream":true,"stream_options":{"a":1},` + ask + `}`,
		`{"model":"m","input":"hi","max_output_tokens":20,"tools":[{"type":"x"}]}`,
		`{"model":"m","max_tokens":1,"messages":[{"content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}}]}]}`,
	} {
		for p := range protocols {
			f.Add(uint8(p), uint8(p%apisByte), []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, protocol, api uint8, body []byte) {
		p, a := Protocol(protocol%uint8(protocols)), API(api%uint8(apis))
		before := bytes.Clone(body)
		c, err := Read(p, body)
		if err != nil {
			var wrong *CallError
			if !errors.As(err, &wrong) || wrong.Text == "" {
				t.Fatalf("the error is %v", err)
			}
			return
		}
		m := models.Model{Name: "other", MaxInput: 1_000_000, MaxOutput: 50, Image: 10}
		u, err := c.Estimate(&m, true)
		if err != nil {
			t.Fatalf("the estimate is an error: %v", err)
		}
		made := c.Body(a, m.Name, u.Output/c.Choices)
		if !bytes.Equal(body, before) {
			t.Fatal("the body has changed")
		}
		again, err := Read(p, made)
		if err != nil {
			t.Fatalf("%s becomes %s: %v", body, made, err)
		}
		if again.Model != m.Name || again.adds() || again.Stream != c.Stream || again.Choices != c.Choices || p != Embeddings && again.MaxOutput*again.Choices != u.Output {
			t.Fatalf("%s becomes %s, which asks for something else than %+v", body, made, u)
		}
	})
}

const apisByte = Protocol(apis)
