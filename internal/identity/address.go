package identity

import (
	"fmt"
	"net/netip"
	"net/textproto"
	"strings"

	"github.com/headgate/headgate"
)

// Source is the name of the header in which trusted proxies hand on the
// client's address. [XForwardedFor] and [Forwarded] are lists that each proxy
// adds to; any other name, such as "X-Real-IP" or "CF-Connecting-IP", is a
// header with a single address that the trusted proxy sets.
type Source string

// The sources whose form is known.
const (
	XForwardedFor Source = "X-Forwarded-For"
	Forwarded     Source = "Forwarded" // RFC 7239
)

// maxHops bounds how many trusted entries of a forwarded list are walked, so
// that a long forged list costs little to refuse.
const maxHops = 64

// Resolver finds the address of the client that sent a request. It believes a
// forwarded address only when the connection comes from a trusted proxy. The
// zero Resolver trusts nobody: the client is the peer of the connection. It is
// immutable and safe for concurrent use.
type Resolver struct {
	source  Source // in canonical form
	trusted []netip.Prefix
	socket  bool // peers without an address, on a Unix socket, are trusted
}

// NewResolver returns a resolver that believes the named header when it comes from one
// of the proxies: prefixes ("10.0.0.0/8"), addresses ("::1"), or "unix" for peers on a
// Unix socket, which have no address. It returns every mistake; a prefix that trusts every
// address is one, for then any client could pass for another.
func NewResolver(source Source, proxies []string) (res *Resolver, problems headgate.Problems) {
	res = &Resolver{source: Source(textproto.CanonicalMIMEHeaderKey(string(source)))}
	if !ValidHeader(string(source)) {
		problems.Add("source", "the source of client addresses is %q, must be a header name such as X-Forwarded-For", source)
	}
	if len(proxies) == 0 {
		problems.Add("proxies", "no proxy is trusted; name at least one prefix, or believe no header")
	}
	for _, text := range proxies {
		if text == "unix" {
			res.socket = true
			continue
		}
		p, problem := parsePrefix(text)
		if problem != "" {
			problems.Add("proxies", "%s", problem)
			continue
		}
		res.trusted = append(res.trusted, p)
	}
	return res, problems
}

// parsePrefix reads a prefix or a single address, and returns what is wrong
// with it or "".
func parsePrefix(text string) (p netip.Prefix, problem string) {
	if !strings.Contains(text, "/") {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return p, fmt.Sprintf("trusted proxy %q is not an address or a prefix such as 10.0.0.0/8", text)
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), ""
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Sprintf("trusted proxy %q is not an address or a prefix such as 10.0.0.0/8", text)
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return p, fmt.Sprintf("trusted proxy %q covers more than the IPv4 addresses; write the IPv4 prefix itself", text)
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p.Bits() == 0 {
		return p, fmt.Sprintf("trusted proxy %q is every address: any client could forge its own", text)
	}
	if p != p.Masked() {
		return p, fmt.Sprintf("trusted proxy %q has bits set beyond the prefix; %s is meant, or the single address %s", text, p.Masked(), p.Addr())
	}
	return p, ""
}

// Client returns the address of the client: IPv4 in its own form, not mapped into IPv6,
// and without a zone. It is remote, the peer of the connection in the form of net/http,
// unless that is a trusted proxy. Then the lines of the source header decide: a list is
// walked from its right end, where the nearest proxy wrote, past trusted proxies to the
// first address that is not one. An entry that is no address ends the walk: the last
// trusted proxy then stands for the client. ok is false if there is no address at all, as
// on a Unix socket.
func (res *Resolver) Client(remote string, lines []string) (addr netip.Addr, ok bool) {
	peer, ok := parseNode(remote)
	switch {
	case ok && !res.trusts(peer):
		return peer, true
	case !ok && !(res.socket && isSocket(remote)):
		return netip.Addr{}, false
	}
	switch res.source {
	case XForwardedFor:
		return res.walk(peer, ok, lines, lastListed)
	case Forwarded:
		return res.walk(peer, ok, lines, lastForwarded)
	}
	if len(lines) == 1 {
		if a, valid := parseNode(trim(lines[0])); valid {
			return a, true
		}
	}
	return peer, ok
}

// Trusts reports whether the peer of a connection is a trusted proxy, so that what its
// headers say of the client is to be believed.
func (res *Resolver) Trusts(remote string) bool {
	peer, ok := parseNode(remote)
	if !ok {
		return res.socket && isSocket(remote)
	}
	return res.trusts(peer)
}

// Source is the header that the resolver believes, in canonical form; "" if it
// believes none.
func (res *Resolver) Source() Source { return res.source }

// isSocket says whether net/http's RemoteAddr is that of a Unix socket: the
// peer's path, which is mostly empty, or "@".
func isSocket(remote string) bool {
	return remote == "" || remote[0] == '@' || remote[0] == '/'
}

func (res *Resolver) trusts(a netip.Addr) bool {
	for _, p := range res.trusted {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// lastEntry cuts the last entry off a list: its address if it has one, and the
// list before it. more is false when nothing is left.
type lastEntry func(list string) (a netip.Addr, ok bool, rest string, more bool)

// walk goes through the header's lines as one list, from its right end. The last
// address known to be true stands in last, if known.
func (res *Resolver) walk(last netip.Addr, known bool, lines []string, cut lastEntry) (netip.Addr, bool) {
	hops := 0
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; hops++ {
			var a netip.Addr
			var ok bool
			if a, ok, rest, more = cut(rest); !ok || hops == maxHops {
				return last, known
			}
			if last, known = a, true; !res.trusts(a) {
				return a, true
			}
		}
	}
	return last, known
}

// lastListed cuts the last entry off an X-Forwarded-For list.
func lastListed(list string) (a netip.Addr, ok bool, rest string, more bool) {
	if comma := strings.LastIndexByte(list, ','); comma >= 0 {
		rest, list, more = list[:comma], list[comma+1:], true
	}
	a, ok = parseNode(trim(list))
	return a, ok, rest, more
}

// parseNode reads an address with or without a port: "192.0.2.1",
// "192.0.2.1:80", "2001:db8::1", "[2001:db8::1]" and "[2001:db8::1]:80". Without
// brackets all of an IPv6 text is the address. The unspecified addresses are
// refused: nobody has them.
func parseNode(s string) (netip.Addr, bool) {
	const longest = 128 // an IPv6 address, a zone and a port are far below
	if s == "" || len(s) > longest {
		return netip.Addr{}, false
	}
	host := s
	if s[0] == '[' {
		end := strings.IndexByte(s, ']')
		if end < 0 || end+1 < len(s) && !isPort(s[end+1:]) {
			return netip.Addr{}, false
		}
		if host = s[1:end]; !strings.Contains(host, ":") {
			return netip.Addr{}, false
		}
	} else if colon := strings.IndexByte(s, ':'); colon >= 0 && colon == strings.LastIndexByte(s, ':') {
		if !isPort(s[colon:]) {
			return netip.Addr{}, false
		}
		host = s[:colon]
	}
	if !plausible(host) {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(host)
	if err != nil || a.IsUnspecified() {
		return netip.Addr{}, false
	}
	if a = a.Unmap().WithZone(""); a.IsUnspecified() {
		return netip.Addr{}, false
	}
	return a, true
}

// plausible spares netip.ParseAddr, whose error allocates, what is plainly no
// address: an attacker chooses how much of that there is.
func plausible(host string) bool {
	if host == "" {
		return false
	}
	for i := 0; i < len(host); i++ {
		switch c := host[i]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'f', c >= 'A' && c <= 'F', c == '.', c == ':':
		case c == '%':
			return i > 0
		default:
			return false
		}
	}
	return true
}

// isPort reports whether s is a colon and a port number.
func isPort(s string) bool {
	if len(s) < 2 || len(s) > 6 || s[0] != ':' {
		return false
	}
	for i := 1; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// trim removes the whitespace that RFC 9110 allows around list entries.
func trim(s string) string { return strings.Trim(s, " \t") }

// ValidHeader reports whether s can be the name of a header.
func ValidHeader(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isToken(s[i]) {
			return false
		}
	}
	return s != ""
}

// isToken reports whether c may stand in a token of RFC 9110.
func isToken(c byte) bool {
	switch {
	case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
