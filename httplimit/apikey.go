package httplimit

import (
	"fmt"
	"net/http"
	"strings"
)

// authorization is the header whose API key follows the word Bearer.
const authorization = "Authorization"

// Bearer returns the token of an Authorization header, or "" if it has none or its
// scheme is another. Between the word Bearer and the token stand spaces, and the token
// is one word of visible ASCII. If what stands there is anything else, ok is false:
// servers do not agree on which part of it is the token, so whoever counts by one part
// would let a client that knows one key pass for as many as it likes.
func Bearer(line string) (token string, ok bool) {
	visible := strings.TrimLeftFunc(line, hidden)
	end := strings.IndexFunc(visible, hidden)
	if end < 0 || !strings.EqualFold(visible[:end], "Bearer") {
		return "", true
	}
	before := line[:len(line)-len(visible)]
	token = strings.TrimRight(strings.TrimLeft(visible[end:], " "), " \t")
	if trim(before) != "" || strings.IndexFunc(token, hidden) >= 0 {
		return "", false
	}
	return token, true
}

// hidden reports whether a character is not visible ASCII: some server takes it for the
// end of a word.
func hidden(c rune) bool { return c < '!' || c > '~' }

// APIKey returns the first API key that one of the headers holds, or "". Their
// names are in canonical form. In Authorization it follows the word Bearer. A request
// that [UnclearAPIKey] has a problem with should be refused instead.
func APIKey(h http.Header, names []string) string {
	for _, name := range names {
		for _, v := range h[name] {
			if name == authorization {
				v, _ = Bearer(v)
			}
			if v = trim(v); v != "" {
				return v
			}
		}
	}
	return ""
}

// UnclearAPIKey returns what is to be said, with status 400, against a request in which
// one of the headers has several lines, or is an Authorization that [Bearer] cannot read
// in one way only; or nil. Of several lines some servers take the first, some the last,
// and some join them. The names are in canonical form.
func UnclearAPIKey(h http.Header, names []string) *Problem {
	for _, name := range names {
		lines := h[name]
		if len(lines) > 1 {
			return severalLines(name, len(lines))
		}
		if name != authorization || len(lines) == 0 {
			continue
		}
		if _, ok := Bearer(lines[0]); !ok {
			return Ambiguous("Authorization has more than one word behind Bearer, or something else than spaces before it.")
		}
	}
	return nil
}

func severalLines(name string, n int) *Problem {
	return Ambiguous(fmt.Sprintf("%s is there %d times. Send it once.", name, n))
}
