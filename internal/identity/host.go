package identity

import (
	"net/netip"
	"strings"
)

// Hostname reads the host of a request, as it stands in a Host header or in :authority: a name or
// an address, and perhaps a port. It returns the host without the port, in lower case and without
// the dot at its end, an IPv6 address in its shortest form, so that each host has one spelling.
//
// If the text is anything else, ok is false: servers do not agree on which part of
// "a.example:80:80" or "user@a.example" is the host, so a client could choose the rules that bind
// it. No text at all is no host, which is fine: requests of HTTP/1.0 may have none.
func Hostname(text string) (host string, ok bool) {
	if text == "" {
		return "", true
	}
	if text[0] == '[' {
		return literal(text)
	}
	host, port, _ := strings.Cut(text, ":")
	host = strings.TrimSuffix(host, ".")
	if !digits(port) || !labels(host) {
		return "", false
	}
	return strings.ToLower(host), true
}

// Unhosted is what is to be said against a host that [Hostname] does not read.
const Unhosted = "Its host is not a name or an address, with or without a port."

// literal reads an IPv6 address in brackets. It has no zone, which means something on one machine
// only.
func literal(text string) (host string, ok bool) {
	inner, rest, closed := strings.Cut(text[1:], "]")
	if !closed || rest != "" && (rest[0] != ':' || !digits(rest[1:])) || !plausible(inner) {
		return "", false
	}
	a, err := netip.ParseAddr(inner)
	if err != nil || !a.Is6() || a.Zone() != "" {
		return "", false
	}
	return "[" + a.String() + "]", true
}

// digits reports whether there is nothing but digits in a port, which may be empty and have zeros
// in front.
func digits(port string) bool {
	for i := range len(port) {
		if port[i] < '0' || port[i] > '9' {
			return false
		}
	}
	return true
}

// labels reports whether the name is made of letters, digits, hyphens and underscores between
// single dots.
func labels(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		case c == '.' && i > 0 && name[i-1] != '.' && i < len(name)-1:
		default:
			return false
		}
	}
	return name != ""
}
