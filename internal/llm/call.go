package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
)

// Protocol is what a call speaks.
type Protocol uint8

// The protocols.
const (
	Chat       Protocol = iota // OpenAI's Chat Completions
	Responses                  // OpenAI's Responses
	Embeddings                 // OpenAI's Embeddings
	Messages                   // Anthropic's Messages

	protocols // the number of them
)

var protocolPaths = [protocols]string{"/chat/completions", "/responses", "/embeddings", "/v1/messages"}

// Of returns the protocol of a request, by its method and path. Providers put different things before
// the same path.
func Of(method, path string) (Protocol, bool) {
	if method != http.MethodPost {
		return 0, false
	}
	for p, end := range protocolPaths {
		if strings.HasSuffix(path, end) {
			return Protocol(p), true
		}
	}
	return 0, false
}

// The bounds of a call.
const (
	// MaxDepth is how deep the values of a request may nest, and MaxKeys how many keys one of its
	// objects may have. All keys of an object are kept until it has ended.
	MaxDepth = 200
	MaxKeys  = 10_000
	// MaxChoices is how many answers a call may ask for.
	MaxChoices = 128
	// toolTokens is how many tokens providers add to the input of a call that has tools, at most, and
	// for each tool of their own.
	toolTokens = 1000
)

// CallError is what is wrong with a call. It tells no more of the call than the names of its fields.
type CallError struct {
	// Field is the field that is wrong, or "".
	Field string
	// Text says what is wrong, for the client.
	Text string
}

// Error returns the text.
func (e *CallError) Error() string { return "llm: " + e.Text }

func mistake(field, format string, args ...any) *CallError {
	return &CallError{field, fmt.Sprintf(format, args...)}
}

// Call is a call to a language model. It is not safe for concurrent use.
type Call struct {
	Protocol Protocol
	// Model is the model that the client names.
	Model string
	// Stream says that the answer is to come in events.
	Stream bool
	// MaxOutput is the largest output that the call declares for one answer, or -1 if it declares
	// none. Choices is how many answers it asks for.
	MaxOutput, Choices int64

	body    []byte
	fields  map[string]span // the known fields, by their names
	declare []string        // the fields that declare the output
	text    int64           // how many bytes may be tokens of input
	images  int64
	beyond  string                     // a part of the input that is not in the bytes, or ""
	options map[string]json.RawMessage // stream_options
	asked   bool                       // the client has asked for an event with the usage
}

const includeUsage = "include_usage"

// span is where a value lies in the body.
type span struct{ from, to int }

// fieldsOf are the fields that a call of the protocol is read by. All others pass as they are.
func fieldsOf(p Protocol) (known, declare []string) {
	switch p {
	case Chat:
		declare = []string{"max_completion_tokens", "max_tokens"}
		known = []string{"n", "stream_options"}
	case Responses:
		declare = []string{"max_output_tokens"}
		known = []string{"background", "previous_response_id", "conversation", "prompt"}
	case Messages:
		declare = []string{"max_tokens"}
		known = []string{"container"}
	}
	return slices.Concat(known, declare, []string{"model", "stream", "tools"}), declare
}

// Read reads the body of a request. It keeps the body, which must not change. The error is a
// [*CallError].
func Read(p Protocol, body []byte) (*Call, error) {
	if !utf8.Valid(body) {
		return nil, mistake("", "The body is not UTF-8.")
	}
	if !json.Valid(body) {
		return nil, mistake("", "The body is not JSON.")
	}
	c := &Call{Protocol: p, MaxOutput: -1, Choices: 1, body: body, fields: make(map[string]span), text: int64(len(body)) + grown(body)}
	known, declare := fieldsOf(p)
	c.declare = declare
	w := walker{call: c, known: known}
	if at := w.space(0); body[at] != '{' {
		return nil, mistake("", "The body is not an object.")
	} else if w.object(at, 1, &part{}); w.wrong != nil {
		return nil, w.wrong
	}
	if c.images = max(w.images, w.pictures); w.pictures > 0 {
		c.text -= w.pictured
	}
	for _, read := range []func() *CallError{c.readModel, c.readStream, c.readOutput, c.readParts} {
		if wrong := read(); wrong != nil {
			return nil, wrong
		}
	}
	return c, nil
}

// raw is the value of a known field. It is nil if the field is missing or null.
func (c *Call) raw(field string) []byte {
	s, ok := c.fields[field]
	if v := c.body[s.from:s.to]; ok && string(v) != "null" {
		return v
	}
	return nil
}

func (c *Call) readModel() *CallError {
	v := c.raw("model")
	if err := json.Unmarshal(v, &c.Model); err != nil || c.Model == "" || len(c.Model) > policy.MaxValue {
		return mistake("model", "model must be a text of 1 to %d bytes.", policy.MaxValue)
	}
	return nil
}

func (c *Call) readStream() (wrong *CallError) {
	if c.Stream, wrong = c.truth("stream"); wrong != nil || c.Protocol != Chat {
		return wrong
	}
	options := c.raw("stream_options")
	if options == nil {
		return nil
	}
	if json.Unmarshal(options, &c.options) != nil {
		return mistake("stream_options", "stream_options must be an object.")
	}
	for name, v := range c.options {
		switch {
		case name == includeUsage && string(v) == "true":
			c.asked = true
		case name == includeUsage && string(v) != "false" && string(v) != "null", name != includeUsage && strings.EqualFold(name, includeUsage):
			return mistake("stream_options.include_usage", "stream_options.include_usage must be true or false, and written like that.")
		}
	}
	return nil
}

func (c *Call) truth(field string) (bool, *CallError) {
	switch v := string(c.raw(field)); v {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	default:
		return false, mistake(field, "%s must be true or false.", field)
	}
}

// number reads a whole number. ok is false if there is none.
func (c *Call) number(field string, least, most int64) (n int64, ok bool, wrong *CallError) {
	v := c.raw(field)
	if v == nil {
		return 0, false, nil
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil || n < least || n > most {
		return 0, false, mistake(field, "%s must be a whole number from %d to %d.", field, least, most)
	}
	return n, true, nil
}

func (c *Call) readOutput() *CallError {
	if n, ok, wrong := c.number("n", 1, MaxChoices); wrong != nil {
		return wrong
	} else if ok {
		c.Choices = n
	}
	least := int64(1) // For some servers, 0 is no bound.
	if c.Protocol == Messages {
		least = 0 // It fills the provider's cache.
	}
	for _, field := range c.declare {
		n, ok, wrong := c.number(field, least, models.MaxTokens)
		if wrong != nil {
			return wrong
		}
		if ok {
			c.MaxOutput = max(c.MaxOutput, n)
		}
	}
	if c.Protocol == Embeddings {
		c.MaxOutput = 0
	}
	return nil
}

func (c *Call) readParts() *CallError {
	for _, field := range []string{"previous_response_id", "conversation", "prompt", "container"} {
		if c.raw(field) != nil {
			c.beyond = field
		}
	}
	if background, wrong := c.truth("background"); wrong != nil {
		return wrong
	} else if background {
		return mistake("background", "Calls in the background are not possible here: what they use would be known only after their answer.")
	}
	if v := c.raw("tools"); v != nil && string(v) != "[]" {
		c.text += toolTokens
	}
	return nil
}

// Estimate returns the most that the call may use of the model, whose Name becomes that of the
// usage. Unless reduce, a call that declares more output than the model's MaxOutput is a
// [*CallError], and so is one of which nothing says how much it may use.
func (c *Call) Estimate(m *models.Model, reduce bool) (models.Usage, error) {
	input, output := c.text+c.images*m.Image, c.MaxOutput
	beyond := c.beyond
	if c.images > 0 && m.Image == 0 && beyond == "" {
		beyond = "an image"
	}
	switch {
	case beyond != "" && m.MaxInput == 0:
		return models.Usage{}, mistake("", "The call has %s, and the policy does not say how much input the model %s accepts (max_input).", beyond, policy.Quote(m.Name))
	case beyond != "", m.MaxInput > 0 && input > m.MaxInput:
		input = m.MaxInput
	}
	switch {
	case output < 0 && m.MaxOutput == 0:
		return models.Usage{}, mistake(c.declare[0], "Say how much output the call may have, in %s: neither the call nor the policy bounds it.", c.declare[0])
	case output < 0:
		output = m.MaxOutput
	case m.MaxOutput > 0 && output > m.MaxOutput && !reduce:
		return models.Usage{}, mistake(c.declare[0], "The call may have %d tokens of output, must be at most %d for the model %s.", output, m.MaxOutput, policy.Quote(m.Name))
	case m.MaxOutput > 0:
		output = min(output, m.MaxOutput)
	}
	if output *= c.Choices; output > models.MaxTokens || input > models.MaxTokens {
		return models.Usage{}, mistake("", "The call may use %d tokens of input and %d of output, must be at most %d.", input, output, models.MaxTokens)
	}
	return models.Usage{Model: m.Name, Input: input, Output: output}, nil
}

// edit is a change of the body.
type edit struct {
	span
	text string
}

// Body returns the body for the provider, which knows the model by this name: the client's own
// bytes, unless something has to be put in. maxOutput is the largest output for one answer, which is
// put in unless the call declares no more.
func (c *Call) Body(api API, model string, maxOutput int64) []byte {
	var edits []edit
	set := func(field, value string) {
		if s, ok := c.fields[field]; ok {
			edits = append(edits, edit{s, value})
			return
		}
		start := bytes.IndexByte(c.body, '{') + 1 // There are other fields behind it: a model at least.
		edits = append(edits, edit{span{start, start}, strconv.Quote(field) + ":" + value + ","})
	}
	if model != c.Model {
		text, _ := json.Marshal(model) // it is a text
		set("model", string(text))
	}
	if c.Protocol != Embeddings {
		c.bound(api, maxOutput, set)
	}
	if c.adds() {
		options := map[string]json.RawMessage{includeUsage: json.RawMessage("true")}
		for name, v := range c.options {
			if name != includeUsage {
				options[name] = v
			}
		}
		text, _ := json.Marshal(options) // its values are valid
		set("stream_options", string(text))
	}
	if edits == nil {
		return c.body
	}
	slices.SortStableFunc(edits, func(a, b edit) int { return a.from - b.from })
	made := make([]byte, 0, len(c.body)+128)
	at := 0
	for _, e := range edits {
		made = append(append(made, c.body[at:e.from]...), e.text...)
		at = e.to
	}
	return append(made, c.body[at:]...)
}

// adds reports whether the provider is asked for an event with the usage that the client has not
// asked for.
func (c *Call) adds() bool { return c.Protocol == Chat && c.Stream && !c.asked }

// bound bounds the output that the call declares.
func (c *Call) bound(api API, most int64, set func(field, value string)) {
	bound := strconv.FormatInt(most, 10)
	for _, name := range c.declare {
		if n, ok, _ := c.number(name, 0, models.MaxTokens); ok && n > most {
			set(name, bound)
		}
	}
	field := c.declare[0]
	if api == Compatible && c.Protocol == Chat {
		// Some servers know only the older field, which others refuse beside the newer one.
		field = "max_tokens"
		if c.raw(field) == nil {
			set(field, bound)
		}
	} else if c.MaxOutput < 0 {
		set(field, bound)
	}
}
