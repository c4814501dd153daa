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

// TestClient: the table of addresses that all languages share.
func TestClient(t *testing.T) {
	t.Parallel()
	for _, tt := range vectors(t).Addresses {
		res, problems := NewResolver(Source(tt.Source), tt.Trusted)
		if problems != nil {
			t.Fatal(problems)
		}
		for _, remote := range tt.remotes() {
			got, ok := clientOf(res, request(remote, map[string][]string{tt.Source: tt.Lines}))
			if ok != (tt.Want != nil) || ok && got.String() != *tt.Want {
				t.Errorf("%s: the client behind %q is %v, %t", tt.Name, remote, got, ok)
			}
		}
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
