package identity

import (
	"strconv"
	"strings"
)

// Authorization is the header whose API key follows the word Bearer.
const Authorization = "Authorization"

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

// APIKey returns the first API key that one of the headers holds, or "". Their names are
// written as in h: in canonical form for HTTP, in lower case for gRPC. In Authorization
// the key follows the word Bearer. A request that is [Unclear] should be refused instead.
func APIKey(h map[string][]string, names []string) string {
	for _, name := range names {
		for _, v := range h[name] {
			if isAuthorization(name) {
				v, _ = Bearer(v)
			}
			if v = trim(v); v != "" {
				return v
			}
		}
	}
	return ""
}

func isAuthorization(name string) bool {
	return len(name) == len(Authorization) && strings.EqualFold(name, Authorization)
}

// Unclear returns why servers read the API key in different ways, or "": one of the
// headers has several lines, of which some servers take the first, some the last, and some
// join them; or it is an Authorization that [Bearer] cannot read in one way only. The
// names are written as in h.
func Unclear(h map[string][]string, names []string) string {
	for _, name := range names {
		if why := SeveralLines(h, name); why != "" {
			return why
		}
		if lines := h[name]; len(lines) == 1 && isAuthorization(name) {
			if _, ok := Bearer(lines[0]); !ok {
				return "Authorization has more than one word behind Bearer, or something else than spaces before it."
			}
		}
	}
	return ""
}

// SeveralLines returns what is to be said against a header that is there more than once,
// or "".
func SeveralLines(h map[string][]string, name string) string {
	if n := len(h[name]); n > 1 {
		return name + " is there " + strconv.Itoa(n) + " times. Send it once."
	}
	return ""
}
