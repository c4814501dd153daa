package llm

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// walker goes once through a body that is known to be JSON, notes where the known fields are, and
// counts what is no text.
type walker struct {
	call  *Call
	known []string
	wrong *CallError

	images   int64 // parts that are images
	pictures int64 // images whose bytes are in the body
	pictured int64 // how many bytes that are
	content  bool  // within the messages, where parts are
	parts    bool  // where a provider reads parts, and not what is text to it
	tools    bool  // within the tools
}

// part is an object within the body, as far as it says whether it is an image.
type part struct {
	picture       bool // it is an image
	base64, image bool
	data          int64 // bytes of its data
}

// around are the keys, besides those of the body itself, behind which parts are. What is behind
// another one, such as the input of a tool, may look like an image and be text.
var around = []string{"content", "output", "source", "image_url", "url"}

// longest is how long a text is at most that says what a part is.
const longest = 256

// few is up to how many keys of an object are searched one by one.
const few = 16

// beyondTypes are the types of parts whose input is not in the bytes of the request.
var beyondTypes = []string{"file", "input_file", "document", "item_reference", "container_upload"}

func (w *walker) space(at int) int {
	for src := w.call.body; at < len(src); at++ {
		switch src[at] {
		case ' ', '\t', '\n', '\r':
		default:
			return at
		}
	}
	return at
}

// object goes through the object that begins at a place, and returns where it ends.
func (w *walker) object(at, depth int, into *part) int {
	src := w.call.body
	if depth > MaxDepth {
		w.wrong = mistake("", "The body nests deeper than %d.", MaxDepth)
		return at
	}
	var keys []string
	var many map[string]bool
	for at = w.space(at + 1); src[at] != '}'; {
		end := w.text(at)
		key := unquoted(src[at:end])
		switch {
		case len(keys) < few && !slices.Contains(keys, key):
			keys = append(keys, key)
		case len(keys) < few, slices.Contains(keys, key), many[key]:
			w.wrong = mistake(shown(key), "The body has the key %q twice in one object.", shown(key))
			return at
		default:
			if many == nil {
				many = make(map[string]bool)
			}
			if many[key] = true; len(keys)+len(many) > MaxKeys {
				w.wrong = mistake("", "The body has an object with more than %d keys.", MaxKeys)
				return at
			}
		}
		from := w.space(w.space(end) + 1) // behind the colon
		outside := w.parts
		if w.parts = outside && slices.Contains(around, key); depth == 1 {
			w.content = key == "messages" || key == "input"
			w.parts, w.tools = w.content, key == "tools"
		}
		if w.content && src[from] != 'n' { // null
			w.key(key, into)
		}
		to := w.value(from, depth, key, into)
		if w.wrong != nil {
			return at
		}
		w.parts = outside
		if w.tools && depth == toolDepth && key == "type" {
			w.tool(src[from:to])
		}
		if depth == 1 {
			w.field(key, span{from, to})
		}
		if at = w.space(to); src[at] == ',' {
			at = w.space(at + 1)
		}
	}
	return at + 1
}

// toolDepth is how deep the keys of a tool are.
const toolDepth = 3

// tool notes the type of a tool. The call says of one of the provider's own, such as a computer, no
// more than its name, and the provider adds what the model is told of it.
func (w *walker) tool(quoted []byte) {
	switch string(quoted) {
	case `"function"`, `"custom"`, "null":
	default:
		w.call.text += toolTokens
	}
}

// key notes what a key alone says about its part. Some servers take a part without a type.
func (w *walker) key(key string, in *part) {
	switch key {
	case "image_url":
		in.picture = true
	case "video_url", "audio_url":
		w.call.beyond = "a part with " + key
	}
}

// field notes a field of the body itself.
func (w *walker) field(key string, s span) {
	for _, name := range w.known {
		if key == name {
			w.call.fields[name] = s
		} else if strings.EqualFold(key, name) && w.wrong == nil {
			// Some servers take it for the field, and others do not.
			w.wrong = mistake(shown(key), "The field %q is one that some servers take for %q; write it like that.", shown(key), name)
		}
	}
}

// value goes through the value of a key, or through one of a list, and returns where it ends.
func (w *walker) value(at, depth int, key string, in *part) int {
	src := w.call.body
	switch src[at] {
	case '{':
		var inner part
		end := w.object(at, depth+1, &inner)
		if inner.picture {
			w.images++
		}
		if inner.base64 && inner.image && w.parts {
			w.pictures++
			w.pictured += inner.data
		}
		return end
	case '[':
		if depth >= MaxDepth {
			w.wrong = mistake("", "The body nests deeper than %d.", MaxDepth)
			return at
		}
		for at = w.space(at + 1); src[at] != ']'; {
			at = w.value(at, depth+1, "", in)
			if w.wrong != nil {
				return at
			}
			if at = w.space(at); src[at] == ',' {
				at = w.space(at + 1)
			}
		}
		return at + 1
	case '"':
		end := w.text(at)
		if w.content {
			w.look(key, src[at:end], in)
		}
		return end
	}
	for ; at < len(src); at++ {
		switch src[at] {
		case ',', ']', '}', ' ', '\t', '\r', '\n':
			return at
		}
	}
	return at
}

// look notes what the text of a key says about its part.
func (w *walker) look(key string, quoted []byte, in *part) {
	size := int64(len(quoted)) - 2
	text := ""
	if size <= longest {
		text = unquoted(quoted)
	}
	switch key {
	case "type":
		switch {
		case text == "image_url", text == "input_image", text == "image":
			in.picture = true
		case text == "base64":
			in.base64 = true
		case slices.Contains(beyondTypes, text):
			w.call.beyond = "a part of the type " + text
		}
	case "media_type":
		in.image = strings.HasPrefix(text, "image/")
	case "data":
		in.data = size
	case "url", "image_url":
		if w.parts && bytes.HasPrefix(quoted, []byte(`"data:image/`)) {
			w.pictures++
			w.pictured += size
		}
	}
}

// text returns where the text ends that begins at a place.
func (w *walker) text(at int) int {
	for at++; w.call.body[at] != '"'; at++ {
		if w.call.body[at] == '\\' {
			at++
		}
	}
	return at + 1
}

// unquoted returns the text of a key.
func unquoted(quoted []byte) string {
	if text := quoted[1 : len(quoted)-1]; !slices.Contains(text, '\\') {
		return string(text)
	}
	var s string
	_ = json.Unmarshal(quoted, &s) // It is valid.
	return s
}

// grown returns by how many bytes a text grows at most when a tokenizer first writes its characters in
// the normal form C of Unicode. What is escaped in JSON is longer than that.
func grown(body []byte) (n int64) {
	for i := 0; i < len(body); {
		if body[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRune(body[i:])
		i += size
		if r < growing[0].first || r > growing[len(growing)-1].last {
			continue
		}
		for _, g := range growing {
			if r >= g.first && r <= g.last {
				n += g.by
			}
		}
	}
	return n
}

// growing are the characters that grow, in their order, and by how many bytes. The ranges have others
// between them.
var growing = [...]struct {
	first, last rune
	by          int64
}{
	{0x344, 0x344, 2},
	{0x958, 0x95f, 3},
	{0x9dc, 0x9df, 3},
	{0xa33, 0xa36, 3},
	{0xa59, 0xa5e, 3},
	{0xb5c, 0xb5d, 3},
	{0xf43, 0xfb9, 3},
	{0x2adc, 0x2adc, 2},
	{0xfa6c, 0xfa6c, 1},
	{0xfacf, 0xfad7, 1},
	{0xfb1d, 0xfb4e, 3},
	{0x1d15e, 0x1d164, 8},
	{0x1d1bb, 0x1d1c0, 8},
}

// shown is a key for messages.
func shown(key string) string { return strings.ToValidUTF8(key[:min(len(key), 64)], "") }
