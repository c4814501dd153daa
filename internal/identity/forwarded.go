package identity

import (
	"net/netip"
	"strings"
)

// lastForwarded cuts the last element off a Forwarded list (RFC 7239). It reads
// from the right end, as the walk does: what a client wrote stands on the left
// of what the proxies added, and an open quote there must not swallow theirs.
func lastForwarded(list string) (a netip.Addr, ok bool, rest string, more bool) {
	element := list
	if comma := lastUnquoted(list, ','); comma >= 0 {
		rest, element, more = list[:comma], list[comma+1:], true
	}
	a, ok = forwardedFor(trim(element))
	return a, ok, rest, more
}

// lastUnquoted is the place of the last c outside of quoted strings, seen from
// the right end, or -1.
func lastUnquoted(s string, c byte) int {
	quoted := false
	for i := len(s) - 1; i >= 0; i-- {
		switch {
		case s[i] == '"' && !(quoted && escaped(s, i)):
			quoted = !quoted
		case s[i] == c && !quoted:
			return i
		}
	}
	return -1
}

// escaped reports whether an odd number of backslashes stands before s[i].
func escaped(s string, i int) bool {
	n := 0
	for i--; i >= 0 && s[i] == '\\'; i-- {
		n++
	}
	return n%2 == 1
}

// forwardedFor returns the address of an element's "for" parameter. An element
// without one, with two, with an obfuscated or unknown node, or that breaks the
// grammar has none.
func forwardedFor(element string) (a netip.Addr, ok bool) {
	found := false
	for {
		name, value, rest, more, valid := cutPair(element)
		if !valid {
			return netip.Addr{}, false
		}
		if strings.EqualFold(name, "for") {
			if found {
				return netip.Addr{}, false
			}
			found = true
			if a, ok = parseNode(value); !ok {
				return netip.Addr{}, false
			}
		}
		if !more {
			return a, found
		}
		element = rest
	}
}

// cutPair cuts the first name=value off an element; more says that a semicolon
// followed it.
func cutPair(s string) (name, value, rest string, more, ok bool) {
	name, s, ok = strings.Cut(s, "=")
	if name = strings.TrimLeft(name, " \t"); !ok || !ValidHeader(name) {
		return "", "", "", false, false
	}
	if strings.HasPrefix(s, `"`) {
		end := 1
		for end < len(s) && s[end] != '"' {
			if s[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(s) {
			return "", "", "", false, false
		}
		// An address needs no escapes: one that has them stays unread.
		value, s = s[1:end], s[end+1:]
	} else {
		end := 0
		for end < len(s) && (isToken(s[end]) || strings.IndexByte(":[]", s[end]) >= 0) {
			end++
		}
		// Colons and brackets need quotes by the grammar; proxies forget them.
		if value, s = s[:end], s[end:]; value == "" {
			return "", "", "", false, false
		}
	}
	s = strings.TrimLeft(s, " \t")
	if s == "" {
		return name, value, "", false, true
	}
	return name, value, s[1:], true, s[0] == ';'
}
