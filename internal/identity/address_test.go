package identity

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func mustResolver(t testing.TB, source Source, proxies ...string) *Resolver {
	t.Helper()
	res, problems := NewResolver(source, proxies)
	if problems != nil {
		t.Fatal(problems)
	}
	return res
}

// clientOf has the resolver look at a request as net/http has it.
func clientOf(res *Resolver, r *http.Request) (netip.Addr, bool) {
	return res.Client(r.RemoteAddr, r.Header[string(res.Source())])
}

func request(remote string, header map[string][]string) *http.Request {
	r := &http.Request{Method: "GET", RemoteAddr: remote, Header: http.Header{}}
	for name, lines := range header {
		r.Header[http.CanonicalHeaderKey(name)] = lines
	}
	return r
}

func TestClient(t *testing.T) {
	t.Parallel()
	const proxy = "10.0.0.1:4711"
	xff := func(lines ...string) map[string][]string { return map[string][]string{"X-Forwarded-For": lines} }
	for _, tt := range []struct {
		name   string
		remote string
		header map[string][]string
		want   string // "" is no address
	}{
		{"no header", "203.0.113.7:1234", nil, "203.0.113.7"},
		{"the peer is not a proxy", "203.0.113.7:1234", xff("198.51.100.1"), "203.0.113.7"},
		{"one hop", proxy, xff("198.51.100.1"), "198.51.100.1"},
		{"no header from the proxy", proxy, nil, "10.0.0.1"},
		{"forged on the left", proxy, xff("1.1.1.1, 198.51.100.1"), "198.51.100.1"},
		{"forged as a proxy", proxy, xff("10.0.0.9, 198.51.100.1"), "198.51.100.1"},
		{"two proxies", proxy, xff("198.51.100.1, 10.0.0.2"), "198.51.100.1"},
		{"two proxies of two families", proxy, xff("198.51.100.1, 2001:db8:ffff::1"), "198.51.100.1"},
		{"all are proxies", proxy, xff("10.0.0.3, 10.0.0.2"), "10.0.0.3"},
		{"many lines are one list", proxy, xff("1.1.1.1", "198.51.100.1", "10.0.0.2"), "198.51.100.1"},
		{"many lines, forged first", proxy, xff("1.1.1.1, 2.2.2.2", "198.51.100.1, 10.0.0.2"), "198.51.100.1"},
		{"garbage ends the walk", proxy, xff("198.51.100.1, nonsense, 10.0.0.2"), "10.0.0.2"},
		{"garbage at the right", proxy, xff("198.51.100.1, nonsense"), "10.0.0.1"},
		{"an empty entry ends the walk", proxy, xff("198.51.100.1,, 10.0.0.2"), "10.0.0.2"},
		{"an empty line ends the walk", proxy, xff("198.51.100.1", ""), "10.0.0.1"},
		{"only blanks", proxy, xff(" \t "), "10.0.0.1"},
		{"unknown", proxy, xff("unknown"), "10.0.0.1"},
		{"no blank after the comma", proxy, xff("1.1.1.1,198.51.100.1"), "198.51.100.1"},
		{"tabs around it", proxy, xff("1.1.1.1,\t198.51.100.1\t"), "198.51.100.1"},
		{"with a port", proxy, xff("198.51.100.1:5555"), "198.51.100.1"},
		{"IPv6", proxy, xff("2001:db8::1"), "2001:db8::1"},
		{"IPv6 in capitals", proxy, xff("2001:DB8::A"), "2001:db8::a"},
		{"IPv6 in brackets", proxy, xff("[2001:db8::1]"), "2001:db8::1"},
		{"IPv6 with a port", proxy, xff("[2001:db8::1]:443"), "2001:db8::1"},
		{"IPv6 with a zone", proxy, xff("fe80::1%eth0"), "fe80::1"},
		{"IPv6, brackets not closed", proxy, xff("[2001:db8::1"), "10.0.0.1"},
		{"IPv6, brackets and rubbish", proxy, xff("[2001:db8::1]x"), "10.0.0.1"},
		{"IPv4 in brackets", proxy, xff("[198.51.100.1]"), "10.0.0.1"},
		{"mapped IPv4 is IPv4", proxy, xff("::ffff:198.51.100.1"), "198.51.100.1"},
		{"mapped IPv4 in hexadecimal", proxy, xff("::ffff:c633:6401"), "198.51.100.1"},
		{"a mapped proxy is a proxy", proxy, xff("198.51.100.1, ::ffff:10.0.0.2"), "198.51.100.1"},
		{"a mapped peer is a proxy", "[::ffff:10.0.0.1]:80", xff("198.51.100.1"), "198.51.100.1"},
		{"a mapped peer", "[::ffff:203.0.113.7]:80", nil, "203.0.113.7"},
		{"an IPv6 peer", "[2001:db8::7]:80", nil, "2001:db8::7"},
		{"an IPv6 peer with a zone", "[fe80::7%eth0]:80", nil, "fe80::7"},
		{"leading zeros are not read as octal", proxy, xff("198.051.100.001"), "10.0.0.1"},
		{"a number is no address", proxy, xff("3325256705"), "10.0.0.1"},
		{"unspecified", proxy, xff("0.0.0.0"), "10.0.0.1"},
		{"unspecified, mapped", proxy, xff("::ffff:0.0.0.0"), "10.0.0.1"},
		{"bad port", proxy, xff("198.51.100.1:http"), "10.0.0.1"},
		{"no port", proxy, xff("198.51.100.1:"), "10.0.0.1"},
		{"very long", proxy, xff(strings.Repeat("1", 5000)), "10.0.0.1"},
		{"a socket is not trusted", "@", xff("198.51.100.1"), ""},
		{"no peer", "", nil, ""},
		{"a peer without a port", "203.0.113.7", nil, "203.0.113.7"},
		{"forwarded is not read", proxy, map[string][]string{"Forwarded": {"for=198.51.100.1"}}, "10.0.0.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			res := mustResolver(t, XForwardedFor, "10.0.0.0/8", "2001:db8:ffff::/48")
			got, ok := clientOf(res, request(tt.remote, tt.header))
			if ok != (tt.want != "") || ok && got.String() != tt.want {
				t.Errorf("Client = %v, %v; want %q", got, ok, tt.want)
			}
		})
	}
}

func TestClientHops(t *testing.T) {
	t.Parallel()
	res := mustResolver(t, XForwardedFor, "10.0.0.0/8")
	list := "198.51.100.1" + strings.Repeat(", 10.0.0.2", maxHops-1)
	if a, _ := clientOf(res, request("10.0.0.1:1", map[string][]string{"X-Forwarded-For": {list}})); a.String() != "198.51.100.1" {
		t.Errorf("behind %d proxies: %v", maxHops-1, a)
	}
	list += ", 10.0.0.2"
	if a, _ := clientOf(res, request("10.0.0.1:1", map[string][]string{"X-Forwarded-For": {list}})); a.String() != "10.0.0.2" {
		t.Errorf("behind %d proxies: %v, want the last one that was walked to", maxHops, a)
	}
}

func TestClientForwarded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, header, want string
	}{
		{"one", "for=198.51.100.1", "198.51.100.1"},
		{"in capitals, with more", "By=10.0.0.1;FOR=198.51.100.1;proto=https", "198.51.100.1"},
		{"blanks around", "  for=198.51.100.1 ; proto=http ", "198.51.100.1"},
		{"quoted with a port", `for="198.51.100.1:80"`, "198.51.100.1"},
		{"IPv6", `for="[2001:db8::1]:4711"`, "2001:db8::1"},
		{"IPv6 without quotes", `for=[2001:db8::1]`, "2001:db8::1"},
		{"two hops", `for=1.1.1.1, for=198.51.100.1, for="10.0.0.2"`, "198.51.100.1"},
		{"a comma in quotes", `for=198.51.100.1;host="a,b"`, "198.51.100.1"},
		{"an escaped quote in quotes", `for=198.51.100.1;host="a\",for=1.1.1.1"`, "198.51.100.1"},
		{"the client's open quote swallows nothing", `for=", for=198.51.100.1`, "198.51.100.1"},
		{"the client's backslash escapes nothing", `for=1.1.1.1;x="\, for="198.51.100.1"`, "198.51.100.1"},
		{"unknown", "for=unknown", "10.0.0.1"},
		{"obfuscated", "for=_hidden", "10.0.0.1"},
		{"no for", "proto=https", "10.0.0.1"},
		{"for twice", "for=198.51.100.1;for=1.1.1.1", "10.0.0.1"},
		{"empty", "", "10.0.0.1"},
		{"no value", "for=", "10.0.0.1"},
		{"no pair", "198.51.100.1", "10.0.0.1"},
		{"rubbish after quotes", `for="198.51.100.1"x`, "10.0.0.1"},
		{"escapes in the address", `for="198.51.100\.1"`, "10.0.0.1"},
		{"a trailing semicolon", "for=198.51.100.1;", "10.0.0.1"},
		{"garbage after a proxy", "for=198.51.100.1, ???, for=10.0.0.2", "10.0.0.2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			res := mustResolver(t, "forwarded", "10.0.0.0/8")
			got, ok := clientOf(res, request("10.0.0.1:80", map[string][]string{"Forwarded": {tt.header}}))
			if !ok || got.String() != tt.want {
				t.Errorf("Client(%s) = %v, %v; want %s", tt.header, got, ok, tt.want)
			}
		})
	}
}

func TestClientSingleHeader(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		remote string
		lines  []string
		want   string
	}{
		{"from the proxy", "10.0.0.1:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"from elsewhere", "203.0.113.7:1", []string{"198.51.100.1"}, "203.0.113.7"},
		{"a trusted address is one too", "10.0.0.1:1", []string{"10.9.9.9"}, "10.9.9.9"},
		{"twice", "10.0.0.1:1", []string{"198.51.100.1", "198.51.100.2"}, "10.0.0.1"},
		{"a list", "10.0.0.1:1", []string{"198.51.100.1, 198.51.100.2"}, "10.0.0.1"},
		{"missing", "10.0.0.1:1", nil, "10.0.0.1"},
		{"a socket", "@", []string{"198.51.100.1"}, "198.51.100.1"},
		{"a socket without a header", "@", nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			res := mustResolver(t, "x-real-ip", "10.0.0.0/8", "unix")
			got, ok := clientOf(res, request(tt.remote, map[string][]string{"X-Real-Ip": tt.lines}))
			if ok != (tt.want != "") || ok && got.String() != tt.want {
				t.Errorf("Client = %v, %v; want %q", got, ok, tt.want)
			}
		})
	}
}

func TestZeroResolverTrustsNobody(t *testing.T) {
	t.Parallel()
	var res Resolver
	header := map[string][]string{"X-Forwarded-For": {"198.51.100.1"}, "": {"198.51.100.1"}}
	if a, ok := clientOf(&res, request("127.0.0.1:1", header)); !ok || a.String() != "127.0.0.1" {
		t.Errorf("Client = %v, %v", a, ok)
	}
}

func TestNewResolverMistakes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		source  Source
		proxies []string
		want    string
	}{
		{"", []string{"::1"}, `the source of client addresses is ""`},
		{"X Real IP", []string{"::1"}, "must be a header name"},
		{XForwardedFor, nil, "no proxy is trusted"},
		{XForwardedFor, []string{"0.0.0.0/0"}, "every address"},
		{XForwardedFor, []string{"::/0"}, "every address"},
		{XForwardedFor, []string{"::ffff:0.0.0.0/96"}, "every address"},
		{XForwardedFor, []string{"::ffff:0.0.0.0/80"}, "write the IPv4 prefix itself"},
		{XForwardedFor, []string{"10.0.0.1/8"}, "10.0.0.0/8 is meant, or the single address 10.0.0.1"},
		{XForwardedFor, []string{"loopback"}, `"loopback" is not an address`},
		{XForwardedFor, []string{"10.0.0.0/33"}, "is not an address"},
		{XForwardedFor, []string{"fe80::1%eth0"}, "is not an address"},
	} {
		_, problems := NewResolver(tt.source, tt.proxies)
		if !strings.Contains(problems.String(), tt.want) {
			t.Errorf("NewResolver(%q, %q): %v; want %q", tt.source, tt.proxies, problems, tt.want)
		}
	}
	if _, problems := NewResolver("", []string{"x", "y"}); len(problems) != 3 {
		t.Errorf("not all mistakes at once: %v", problems)
	}
}

// The security property of both lists: whatever a client has written, what the
// trusted proxy adds on the right decides.
func FuzzForgery(f *testing.F) {
	for _, s := range []string{"", "1.1.1.1", `for="`, `for=x\`, `"`, `\"`, "for=10.0.0.1, ", "[::1", ",", "10.0.0.1,10.0.0.2", `for="a,b";x="\"`} {
		f.Add(s, uint8(0))
		f.Add(s, uint8(1))
	}
	plain := mustResolver(f, XForwardedFor, "10.0.0.0/8")
	rfc := mustResolver(f, Forwarded, "10.0.0.0/8")
	f.Fuzz(func(t *testing.T, forged string, split uint8) {
		const client = "198.51.100.1"
		lines := func(added string) []string {
			if split%2 == 0 {
				return []string{forged + ", " + added}
			}
			return []string{forged, added}
		}
		for _, c := range []struct {
			res    *Resolver
			header string
			added  string
		}{
			{plain, "X-Forwarded-For", client},
			{plain, "X-Forwarded-For", client + ", 10.0.0.2"},
			{rfc, "Forwarded", "for=" + client},
			{rfc, "Forwarded", `for="` + client + `:80";by="a,\"b", for=10.0.0.2`},
		} {
			r := request("10.0.0.1:1", map[string][]string{c.header: lines(c.added)})
			if a, ok := clientOf(c.res, r); !ok || a.String() != client {
				t.Errorf("%s: %q makes the client %v", c.header, r.Header[c.header], a)
			}
			// Without the proxy's entry anything may come out, but never a mapped
			// or zoned address, and never a panic.
			r.Header[c.header] = []string{forged}
			if a, ok := clientOf(c.res, r); !ok || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() {
				t.Errorf("%s: %q makes the client %v, %v", c.header, forged, a, ok)
			}
		}
	})
}
