package gateway

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
)

// echo answers with the request's own headers.
func echo(w http.ResponseWriter, r *http.Request) {
	r.Header.Set("Seen-Host", r.Host)
	r.Header.Set("Seen-Uri", r.RequestURI)
	r.Header.Set("Seen-Encoding", strings.Join(r.TransferEncoding, ","))
	_ = json.NewEncoder(w).Encode(r.Header)
}

// seen are the headers that the upstream server has seen.
func (a answer) seen(t *testing.T) http.Header {
	t.Helper()
	var h http.Header
	if err := json.Unmarshal([]byte(a.text), &h); err != nil {
		t.Fatalf("%v in %s", err, a.text)
	}
	return h
}

// saw checks headers "Name: value" that the upstream server has seen; an empty
// value is an absent one.
func (a answer) saw(t *testing.T, headers ...string) {
	t.Helper()
	h := a.seen(t)
	for _, want := range headers {
		name, value, _ := strings.Cut(want, ": ")
		if got := strings.Join(h.Values(name), " | "); got != value {
			t.Errorf("the upstream server has seen %s %q, want %q", name, got, value)
		}
	}
}

// claims are what a client may say of itself.
var claims = []string{
	"X-Forwarded-For: 203.0.113.7", "X-Forwarded-For: 198.51.100.2", "X-Forwarded-Host: public.example", "X-Forwarded-Proto: https",
	"Forwarded: for=203.0.113.7", "X-Real-IP: 203.0.113.9", "X-Original-URL: /admin", "X-Forwarded-Prefix: /x", "True-Client-IP: 203.0.113.8",
	"X-User: root", "Script-Name: /x", "X-Script-Name: /x",
}

func TestForwardedByAStranger(t *testing.T) {
	t.Parallel()
	o := to(upstream(t, echo).URL)
	r, err := httplimit.NewResolver(httplimit.XForwardedFor, "192.0.2.0/24")
	if err != nil {
		t.Fatal(err)
	}
	o.Identity.Resolver, o.Identity.Trusted = r, map[string]string{"user": "x-user"}
	g := serveGateway(t, decider(t, nil), o)
	get(t, client(t), g.url+"/p?q", append(claims, "Host: shop.example:81")...).saw(t,
		"X-Forwarded-For: 127.0.0.1", "X-Forwarded-Host: shop.example:81", "X-Forwarded-Proto: http", "X-Real-IP: 127.0.0.1",
		"Forwarded: ", "X-Original-Url: ", "X-Forwarded-Prefix: ", "True-Client-Ip: ", "X-User: ", "Script-Name: ", "X-Script-Name: ", "Seen-Host: shop.example:81", "Seen-Uri: /p?q")
}

func TestForwardedByATrustedProxy(t *testing.T) {
	t.Parallel()
	o := to(upstream(t, echo).URL)
	o.Identity.Resolver, o.Identity.Trusted = trusting(t), map[string]string{"user": "X-User"}
	g := serveGateway(t, decider(t, nil), o)
	get(t, client(t), g.url+"/", claims...).saw(t,
		"X-Forwarded-For: 203.0.113.7, 198.51.100.2, 127.0.0.1", "X-Forwarded-Host: public.example", "X-Forwarded-Proto: https",
		// The list that is believed is X-Forwarded-For.
		"X-Real-IP: 198.51.100.2", "Forwarded: ", "X-Original-Url: /admin", "X-User: root", "Script-Name: /x")
}

// Gunicorn takes the path behind what one of these headers says, whoever sends it.
func TestNobodyMovesThePath(t *testing.T) {
	t.Parallel()
	for _, trusted := range []string{"127.0.0.1", "192.0.2.1"} {
		o := to(upstream(t, echo).URL)
		r, err := httplimit.NewResolver(httplimit.XForwardedFor, trusted)
		if err != nil {
			t.Fatal(err)
		}
		o.Identity.Resolver = r
		g := serveGateway(t, decider(t, nil), o)
		get(t, client(t), g.url+"/x/v1/token", "SCRIPT_NAME: /x", "PATH_INFO: /v1/token", "Script_Name: /x").saw(t, "SCRIPT_NAME: ", "PATH_INFO: ", "Script_name: ")
	}
}

func TestForwardedAsRFC7239(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ trusted, given, want, ip string }{
		{"127.0.0.1", "for=203.0.113.7;proto=https", "for=203.0.113.7;proto=https, for=127.0.0.1;proto=http", "203.0.113.7"},
		{"192.0.2.1", "for=203.0.113.7;proto=https", "for=127.0.0.1;proto=http", "127.0.0.1"},
	} {
		r, err := httplimit.NewResolver(httplimit.Forwarded, tt.trusted)
		if err != nil {
			t.Fatal(err)
		}
		o := to(upstream(t, echo).URL)
		o.Identity.Resolver = r
		g := serveGateway(t, decider(t, nil), o)
		get(t, client(t), g.url+"/", "Forwarded: "+tt.given).saw(t, "Forwarded: "+tt.want, "X-Real-Ip: "+tt.ip)
	}
}

// A header with one address is the trusted proxy's to set, and nobody else's.
func TestForwardedInAHeaderOfItsOwn(t *testing.T) {
	t.Parallel()
	for trusted, want := range map[string][]string{
		"127.0.0.1": {"Cf-Connecting-Ip: 203.0.113.7", "X-Real-Ip: 203.0.113.7"},
		"192.0.2.1": {"Cf-Connecting-Ip: ", "X-Real-Ip: 127.0.0.1"},
	} {
		r, err := httplimit.NewResolver("CF-Connecting-IP", trusted)
		if err != nil {
			t.Fatal(err)
		}
		o := to(upstream(t, echo).URL)
		o.Identity.Resolver = r
		g := serveGateway(t, decider(t, nil), o)
		get(t, client(t), g.url+"/", "CF-Connecting-IP: 203.0.113.7").saw(t, want...)
	}
}

// A client on a Unix socket has no address.
func TestForwardedFromASocket(t *testing.T) {
	t.Parallel()
	g, err := New(t.Context(), decider(t, nil), to(upstream(t, echo).URL))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	s := g.Server(g, nil)
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	c := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", l.Addr().String()) }}}
	defer c.CloseIdleConnections()
	get(t, c, "http://here/", "X-Forwarded-For: 203.0.113.7").saw(t, "X-Forwarded-For: ", "X-Real-Ip: ", "X-Forwarded-Host: here")
}

func TestHopByHop(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		w.Header().Set("Keep-Alive", "timeout=9")
		echo(w, r)
	})
	o := to(up.URL)
	o.Identity.Resolver, o.Identity.Trusted = trusting(t), map[string]string{"user": "X-User"}
	o.Request.Set = []gatewayfile.Header{{Name: "X-From", Entry: "user"}}
	g := serveGateway(t, decider(t, nil), o)
	// A client cannot have the gateway drop what the gateway sets.
	a := get(t, client(t), g.url+"/", "Connection: X-Mine, X-Real-Ip, X-From, X-Forwarded-For", "X-Mine: 1", "Te: trailers", "Proxy-Authorization: geheim", "Keep-Alive: 3", "X-User: u")
	a.wants(t, 200, "X-Hop: ", "Keep-Alive: ", "Connection: ")
	a.saw(t, "X-Mine: ", "Te: trailers", "Proxy-Authorization: ", "Keep-Alive: ", "X-Real-Ip: 127.0.0.1", "X-From: u", "X-Forwarded-For: 127.0.0.1")
}

func TestHeadersAreChanged(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", "secret/1.0")
		w.Header().Add("X-Powered-By", "a")
		w.Header().Add("X-Powered-By", "b")
		echo(w, r)
	})
	o := to(up.URL)
	o.Identity.Headers = map[string]string{"tenant": "X-Tenant"}
	o.Request = gatewayfile.Headers{Remove: []string{"cookie"}, Set: []gatewayfile.Header{{Name: "x-gateway", Value: "1"}, {Name: "X-Counted-As", Entry: "tenant"}, {Name: "X-Came-From", Entry: "ip"}}}
	o.Response = gatewayfile.Headers{Remove: []string{"Server"}, Set: []gatewayfile.Header{{Name: "X-Powered-By", Value: "water"}}}
	o.Routes = []gatewayfile.Route{
		{Pattern: "/"},
		{Pattern: "/more", Request: gatewayfile.Headers{Set: []gatewayfile.Header{{Name: "X-Gateway", Value: "2"}}}, Response: gatewayfile.Headers{Set: []gatewayfile.Header{{Name: "Cache-Control", Value: "private"}}}},
	}
	g := serveGateway(t, decider(t, nil), o)
	c := client(t)
	a := get(t, c, g.url+"/", "Cookie: a=b", "X-Tenant: t1", "X-Counted-As: forged")
	a.wants(t, 200, "Server: ", "X-Powered-By: water", "Cache-Control: ")
	a.saw(t, "Cookie: ", "X-Gateway: 1", "X-Counted-As: t1", "X-Came-From: 127.0.0.1")
	a = get(t, c, g.url+"/more", "X-Counted-As: forged")
	a.wants(t, 200, "X-Powered-By: water", "Cache-Control: private")
	a.saw(t, "X-Gateway: 2", "X-Counted-As: ")
}

func TestHostOfTheTarget(t *testing.T) {
	t.Parallel()
	up := upstream(t, echo)
	o := to(up.URL)
	o.Upstreams[0].TargetHost = true
	g := serveGateway(t, decider(t, nil), o)
	get(t, client(t), g.url+"/", "Host: shop.example").saw(t, "Seen-Host: "+up.Listener.Addr().String(), "X-Forwarded-Host: shop.example")
}

// What the client accepts and says of itself is passed on, and nothing is added.
func TestNothingIsAdded(t *testing.T) {
	t.Parallel()
	g := serveGateway(t, decider(t, nil), to(upstream(t, echo).URL))
	get(t, client(t), g.url+"//a/../b%2Fc?x=%zz", "User-Agent: ").saw(t, "User-Agent: ", "Accept-Encoding: ", "Seen-Uri: //a/../b%2Fc?x=%zz")
	get(t, client(t), g.url+"/", "Accept-Encoding: br").saw(t, "Accept-Encoding: br")
}

func TestUpstreamOverTLS(t *testing.T) {
	t.Parallel()
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Proto", r.Proto)
		echo(w, r)
	}))
	up.EnableHTTP2 = true
	up.StartTLS()
	defer up.Close()
	o := to(up.URL)
	o.Upstreams[0].Timeouts.Dial = within // the handshake is part of it
	g := serveGateway(t, decider(t, nil), o)
	get(t, client(t), g.url+"/").wants(t, 502) // nobody vouches for it

	o.Upstreams[0].TLS = up.Client().Transport.(*http.Transport).TLSClientConfig
	o.Upstreams[0].Timeouts.KeepAlive = time.Minute
	known := serveGateway(t, decider(t, nil), o)
	get(t, client(t), known.url+"/").wants(t, 200, "X-Proto: HTTP/2.0")
}

// Servers that hand headers on as variables take X_User for X-User.
func TestHeadersThatOnlyServersTakeForOthers(t *testing.T) {
	t.Parallel()
	o := to(upstream(t, echo).URL)
	o.Identity.Resolver, o.Identity.Trusted = trusting(t), map[string]string{"user": "X-User"}
	o.Identity.Headers = map[string]string{"tenant": "X-Tenant"}
	o.Request = gatewayfile.Headers{Set: []gatewayfile.Header{{Name: "X-Gateway", Value: "headgate"}}, Remove: []string{"X-Debug"}}
	g := serveGateway(t, decider(t, nil), o)
	get(t, client(t), g.url+"/", "X_User: root", "X_Real_IP: 203.0.113.9", "X.Forwarded.For: 203.0.113.9", "X_Tenant: a", "x_api_key: k", "X_Gateway: no", "X_Debug: 1",
		"Proxy: http://203.0.113.9", "X_Mine: stays").saw(t,
		"X_user: ", "X_real_ip: ", "X.forwarded.for: ", "X_tenant: ", "X_api_key: ", "X_gateway: ", "X_debug: ", "Proxy: ", "X_mine: stays", "X-Gateway: headgate")
}

// Of two lines the server might believe the one that is not counted by.
func TestIdentityInSeveralLines(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		headers []string
		trusted string
		want    int
	}{
		{"an API key", []string{"X-API-Key: a", "X-API-Key: b"}, "192.0.2.1", 400},
		{"the same one", []string{"X-API-Key: a", "X-API-Key: a"}, "192.0.2.1", 400},
		{"Authorization", []string{"Authorization: Bearer a", "Authorization: Bearer b"}, "192.0.2.1", 400},
		{"a header that is counted by", []string{"X-Tenant: a", "X-Tenant: "}, "192.0.2.1", 400},
		{"a trusted header", []string{"X-User: a", "X-User: b"}, "127.0.0.1", 400},
		{"one that is removed", []string{"X-User: a", "X-User: b"}, "192.0.2.1", 200},
		{"the way of the request", []string{"X-Forwarded-For: 192.0.2.7", "X-Forwarded-For: 192.0.2.8"}, "127.0.0.1", 200},
		{"another header", []string{"X-Mine: a", "X-Mine: b"}, "192.0.2.1", 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := httplimit.NewResolver(httplimit.XForwardedFor, tt.trusted)
			if err != nil {
				t.Fatal(err)
			}
			o := to(upstream(t, echo).URL)
			o.Identity.Resolver, o.Identity.Trusted = r, map[string]string{"user": "X-User"}
			o.Identity.Headers = map[string]string{"tenant": "X-Tenant"}
			g := serveGateway(t, decider(t, []policy.Rule{perKey(10)}), o)
			get(t, client(t), g.url+"/", tt.headers...).wants(t, tt.want)
		})
	}
}
