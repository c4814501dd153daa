package identity

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// Authorization is the header whose API key follows a scheme, which is Bearer if nothing else is
// said.
const Authorization = "Authorization"

// anyScheme stands for every scheme, and for a key without one.
const anyScheme = "*"

// Keys are the headers that may have an API key. They are made by [Keys.Add], and then immutable
// and safe for concurrent use. The zero Keys has none.
type Keys struct{ sources []source }

// source is a header with a key.
type source struct {
	name string // as headers have it: in canonical form for HTTP, in lower case for gRPC
	// schemes are what may precede the key. Without any, the whole value is the key.
	schemes []string
}

// defaultScheme is the one of Authorization.
const defaultScheme = "Bearer"

// Add adds a header in the words of configurations, and returns what is wrong with it, or "". The
// whole value of X-Api-Key is a key; in Authorization:Token, the key follows the word Token. A
// header may be added with several schemes. Authorization alone is Authorization:Bearer, and in
// Authorization:* the key follows any scheme, or none. canonical brings a name to the form in which
// the headers have it.
func (k *Keys) Add(text string, canonical func(string) string) (problem string) {
	name, scheme, given := strings.Cut(text, ":")
	if scheme = trim(scheme); !ValidHeader(name) || given && !ValidHeader(scheme) {
		return strconv.Quote(text) + " is not the name of a header, with or without a scheme, such as X-Api-Key or Authorization:Token"
	}
	if !given && strings.EqualFold(name, Authorization) {
		scheme = defaultScheme
	}
	name = canonical(name)
	i := slices.IndexFunc(k.sources, func(s source) bool { return s.name == name })
	if i < 0 {
		i = len(k.sources)
		k.sources = append(k.sources, source{name: name})
	}
	if s := &k.sources[i]; scheme != "" {
		s.schemes = append(s.schemes, scheme)
	}
	return ""
}

// Names returns the names of the headers.
func (k *Keys) Names() []string {
	names := make([]string, len(k.sources))
	for i := range k.sources {
		names[i] = k.sources[i].name
	}
	return names
}

// Has returns the header's name as [Keys.Of] looks for it, or "" if it is none of the headers. Case
// does not matter.
func (k *Keys) Has(name string) string {
	for i := range k.sources {
		if strings.EqualFold(k.sources[i].name, name) {
			return k.sources[i].name
		}
	}
	return ""
}

// Challenge returns what WWW-Authenticate has to say to a client without a key.
func (k *Keys) Challenge() string {
	for i := range k.sources {
		if s := &k.sources[i]; strings.EqualFold(s.name, Authorization) {
			if s.schemes[0] == anyScheme {
				return defaultScheme
			}
			return s.schemes[0]
		}
	}
	return `ApiKey header="` + k.sources[0].name + `"`
}

// Of returns the first API key that the headers hold, or "". A request that is [Keys.Unclear]
// should be refused instead.
func (k *Keys) Of(h map[string][]string) string {
	for i := range k.sources {
		s := &k.sources[i]
		for _, line := range h[s.name] {
			if key, _ := s.read(line); key != "" {
				return key
			}
		}
	}
	return ""
}

// Unclear returns why servers read the API key in different ways, or "": one of the headers has
// several lines, of which some servers take the first, some the last, and some join them; or what
// stands in it is more than a scheme and a key.
func (k *Keys) Unclear(h map[string][]string) string {
	for i := range k.sources {
		s := &k.sources[i]
		if why := SeveralLines(h, s.name); why != "" {
			return why
		}
		if lines := h[s.name]; len(lines) == 1 {
			if _, ok := s.read(lines[0]); !ok {
				return s.name + " has more than one word behind its scheme, or something else than spaces before it."
			}
		}
	}
	return ""
}

// Confusable returns why some server takes another header of the request for one of these, or "".
// Servers that make variables of headers, as CGI, WSGI, Rack and PHP do, do not tell X_Api_Key from
// X-Api-Key.
func (k *Keys) Confusable(h map[string][]string) string {
	for name := range h {
		if why := k.ConfusableName(name); why != "" {
			return why
		}
	}
	return ""
}

// ConfusableName is [Keys.Confusable] for one header.
func (k *Keys) ConfusableName(name string) string {
	if Usual(name) {
		return ""
	}
	for i := range k.sources {
		if of := k.sources[i].name; !strings.EqualFold(name, of) && sameVariable(name, of) {
			return name + " is the same as " + of + " to some servers. Send one of the two."
		}
	}
	return ""
}

// read returns the key in a value, or "" if it has none or its scheme is another. Between the
// scheme and the key stand spaces, and the key is one word of visible ASCII. If anything else
// stands there, ok is false: servers do not agree on which part of it is the key, so whoever counts
// by one part would let a client that knows one key pass for as many as it likes.
func (s *source) read(line string) (key string, ok bool) {
	if s.schemes == nil {
		return trim(line), true
	}
	visible := strings.TrimLeftFunc(line, hidden)
	before := line[:len(line)-len(visible)]
	visible = strings.TrimRight(visible, " \t")
	whatever := slices.Contains(s.schemes, anyScheme)
	end := strings.IndexFunc(visible, hidden)
	switch {
	case end < 0 && whatever:
		if trim(before) != "" {
			return "", false
		}
		return visible, true
	case end < 0 || !whatever && !slices.ContainsFunc(s.schemes, func(scheme string) bool { return strings.EqualFold(scheme, visible[:end]) }):
		return "", true
	}
	key = strings.TrimLeft(visible[end:], " ")
	if trim(before) != "" || strings.IndexFunc(key, hidden) >= 0 {
		return "", false
	}
	return key, true
}

// hidden reports whether a character is not visible ASCII: some server takes it for the end of a
// word.
func hidden(c rune) bool { return c < '!' || c > '~' }

// SeveralLines returns what is to be said against a header that is there more than once, or "".
func SeveralLines(h map[string][]string, name string) string {
	if n := len(h[name]); n > 1 {
		return name + " is there " + strconv.Itoa(n) + " times. Send it once."
	}
	return ""
}

// credentials are the headers, in canonical form, in which clients send keys.
var credentials = []string{Authorization, "X-Api-Key", "Api-Key", "Apikey", "X-Auth-Token", "X-Access-Token"}

// Credential returns the header's name in canonical form if clients send keys in it, and ""
// otherwise. Case does not matter.
func Credential(name string) string {
	for _, c := range credentials {
		if strings.EqualFold(c, name) {
			return c
		}
	}
	return ""
}

// Unread tells the log, once, of a request whose credentials no rule can read: it has a key, but in
// a header or behind a scheme that nobody was told of. It is safe for concurrent use.
type Unread struct{ warned atomic.Bool }

// Look looks at the headers, in canonical form, of a request that has no API key.
func (u *Unread) Look(ctx context.Context, logger *slog.Logger, h map[string][]string) {
	if u.warned.Load() {
		return
	}
	for _, name := range credentials {
		if len(h[name]) > 0 && u.warned.CompareAndSwap(false, true) {
			logger.LogAttrs(ctx, slog.LevelWarn, "a request has credentials that are read neither as an API key nor as a token, so rules by these do not bind it; name the header, or its scheme as in Authorization:Token, if clients are to be counted by it",
				slog.String("header", name))
			return
		}
	}
}
