package gateway

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// Whatever is sent over a connection, the server sees no request that was not decided
// on as the one that it sees.
func TestNothingIsSmuggled(t *testing.T) {
	t.Parallel()
	const inner = "GET /inner HTTP/1.1\r\nHost: h\r\nX-Inner: 1\r\n\r\n"
	head := "POST /outer HTTP/1.1\r\nHost: h\r\n"
	length := fmt.Sprintf("Content-Length: %d\r\n", len(inner))
	for name, text := range map[string]string{
		"both lengths":                 head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
		"both, the length is all":      head + fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", len(inner)+5) + inner,
		"two lengths":                  head + "Content-Length: 0\r\n" + length + "\r\n" + inner,
		"two lengths in a line":        head + fmt.Sprintf("Content-Length: 0, %d\r\n\r\n", len(inner)) + inner,
		"a signed length":              head + fmt.Sprintf("Content-Length: +%d\r\n\r\n", len(inner)) + inner,
		"a length with letters":        head + "Content-Length: 0x0\r\n\r\n" + inner,
		"a length before a space":      head + fmt.Sprintf("Content-Length : %d\r\n\r\n", len(inner)) + inner,
		"a folded coding":              head + "X-A: b\r\n Transfer-Encoding: chunked\r\n" + length + "\r\n" + inner,
		"a coding on the next line":    head + "Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + inner,
		"a coding nobody knows":        head + "Transfer-Encoding: xchunked\r\n" + length + "\r\n" + inner,
		"a coding behind another":      head + "Transfer-Encoding: chunked, identity\r\n" + length + "\r\n" + inner,
		"two codings":                  head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: cow\r\n" + length + "\r\n" + inner,
		"a coding before a space":      head + "Transfer-Encoding : chunked\r\n" + length + "\r\n" + inner,
		"a coding with a tab":          head + "Transfer-Encoding:\tchunked\r\n" + length + "\r\n0\r\n\r\n" + inner,
		"lines without CR":             "POST /outer HTTP/1.1\nHost: h\nTransfer-Encoding: chunked\n\n0\n\n" + inner,
		"CR alone":                     head + "X-A: b\rTransfer-Encoding: chunked\r\n" + length + "\r\n" + inner,
		"NUL in a header":              head + "X-A: b\x00\r\n" + length + "\r\n" + inner,
		"an extension with a line":     head + "Transfer-Encoding: chunked\r\n\r\n1;a=\"\n\"\r\nx\r\n0\r\n\r\n" + inner,
		"a chunk without its end":      head + "Transfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n0\r\n\r\n" + inner,
		"a large chunk size":           head + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff0\r\n\r\n" + inner,
		"a body of GET":                "GET /outer HTTP/1.1\r\nHost: h\r\n" + length + "\r\n" + inner,
		"two hosts":                    head + "Host: i\r\n\r\n" + inner,
		"the length is the body's own": head + "Connection: Content-Length\r\n" + length + "\r\n" + inner,
		"version 1.0 in chunks":        "POST /outer HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
		"an upgrade that is refused":   "GET /outer HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + inner,
		"an upgrade to h2c":            "GET /outer HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n" + inner,
		"an absolute target":           "GET http://other/inner HTTP/1.1\r\nHost: h\r\n\r\n" + inner,
		"the next one":                 head + "Content-Length: 1\r\n\r\nx" + inner,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var outer, within atomic.Int64
			up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if r.URL.Path == "/inner" {
					within.Add(1)
				} else {
					outer.Add(1)
				}
			})
			rules := []policy.Rule{
				{Match: []policy.Condition{policy.Equal("route", "/outer")}, Limits: headgate.MustRule("outer", headgate.PerHour(100))},
				{Match: []policy.Condition{policy.Equal("route", "/inner")}, Limits: headgate.MustRule("inner", headgate.PerHour(100))},
			}
			d := decider(t, rules)
			g := serveGateway(t, d, to(up.URL))
			c := dial(t, g.addr)
			if _, err := io.WriteString(c, text); err != nil {
				t.Fatal(err)
			}
			if err := c.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, c); err != nil {
				t.Logf("the gateway ends the connection with %v", err)
			}
			eventually(t, "nothing is in progress", func() bool { return g.counts.inFlight.Load() == 0 })
			for i, seen := range []*atomic.Int64{&outer, &within} {
				decisions, err := d.Store.Take(t.Context(), headgate.OpPeek, []headgate.Check{{Rule: rules[i].Limits}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if charged := 100 - decisions[0].Remaining; seen.Load() > charged {
					t.Errorf("the server has seen %d requests of %s, and %d were charged", seen.Load(), rules[i].Limits.Name(), charged)
				}
			}
		})
	}
}

// A rule for a path, a method or a host holds however they are spelled.
func TestRulesAreNotSpelledAround(t *testing.T) {
	t.Parallel()
	closed := func(name string, c policy.Condition) policy.Option {
		return policy.Denied(policy.ListEntry{Name: name, Match: []policy.Condition{c}})
	}
	paths := serveGateway(t, decider(t, nil, closed("paths", policy.Prefix("path", "/admin"))), to(upstream(t, hello).URL))
	top := serveGateway(t, decider(t, nil, closed("top", policy.Equal("path", "/"))), to(upstream(t, hello).URL))
	methods := serveGateway(t, decider(t, nil, closed("methods", policy.Equal("route", "DELETE /items/{id}"))), to(upstream(t, hello).URL))
	o := to(upstream(t, hello).URL)
	o.Paths = httplimit.IgnoredOverrides
	ignored := serveGateway(t, decider(t, nil, closed("methods", policy.Equal("route", "DELETE /items/{id}"))), o)
	o.Paths = httplimit.EncodedSlashes | httplimit.KeptParameters
	kept := serveGateway(t, decider(t, nil, closed("paths", policy.Prefix("path", "/admin"))), o)
	free := serveGateway(t, decider(t, []policy.Rule{perKey(1)}), to(upstream(t, hello).URL))
	hosts := serveGateway(t, decider(t, nil, closed("hosts", policy.Equal("route", "Admin.example/"))), to(upstream(t, hello).URL))
	for _, tt := range []struct {
		g            *fixture
		target, host string
		status       int
	}{
		{paths, "GET /admin/x", "h", 403},
		{paths, "GET //admin/x", "h", 400},
		{paths, "GET /./admin/x", "h", 400},
		{paths, "GET /x/../admin/x", "h", 400},
		{paths, "GET /x/..//admin/", "h", 400},
		{paths, "GET /%61dmin", "h", 403},
		{paths, "GET /%2e/admin", "h", 400},
		{paths, "GET /admin//x", "h", 403},
		{paths, "GET http://other/admin", "h", 403},
		{paths, "GET /%2fadmin", "h", 400},
		{paths, "GET /%252e%252e/admin", "h", 400},
		{paths, "GET /%2561dmin", "h", 400},
		{paths, "GET /x/..%5cadmin", "h", 400},
		{paths, "GET \\admin", "h", 400},
		{paths, "GET /;a/admin", "h", 400},
		{paths, "GET /x/..;/admin", "h", 400},
		{paths, "GET /adm%00in", "h", 400},
		{paths, "GET x:admin", "h", 400},
		{paths, "GET http:x/../admin", "h", 400},
		{paths, "GET x:%2fadmin", "h", 400},
		{paths, "GET x:/admin", "h", 403},
		{paths, "GET *", "h", 400},
		{paths, "GET http://other", "h", 200},
		{top, "GET /", "h", 403},
		{top, "GET http://other", "h", 403},
		{top, "GET http:?x", "h", 403},
		{paths, "GET /other//x/", "h", 200},
		{paths, "GET /items/@scope%2Fpackage", "h", 400},
		{paths, "GET /x;a", "h", 400},
		{kept, "GET /items/@scope%2Fpackage;a", "h", 200},
		{kept, "GET /admin;a", "h", 403},
		{kept, "GET /admin%2Fx", "h", 403},
		{free, "GET //admin/../x%2fy;a/%2561\\", "h", 200},
		{free, "get /x", "h", 200},
		{free, "GET x:admin", "h", 400},
		{methods, "DELETE /items/7", "h", 403},
		{methods, "delete /items/7", "h", 400},
		{methods, "Delete //items/7", "h", 400},
		{methods, "DELETE /items/7%00", "h", 400},
		{methods, "DELETE /items%00/7", "h", 400},
		{methods, "delete /other", "h", 400},
		{methods, "GET /items/7", "h", 200},
		{hosts, "GET /", "Admin.example", 403},
		{hosts, "GET /", "admin.example", 403},
		{hosts, "GET /", "ADMIN.EXAMPLE", 403},
		{hosts, "GET /", "admin.example.", 403},
		{hosts, "GET /", "admin.example:8000", 403},
		{hosts, "GET /", "admin.example.:8000", 403},
		{hosts, "GET http://aDmin.example/", "other", 403},
		{hosts, "GET /", "badmin.example", 200},
		{hosts, "GET /", "admin.example:", 403},
		{hosts, "GET /", "admin.example:80:80", 400},
		{hosts, "GET /", "admin.example:abc", 400},
		{hosts, "GET /", "user@admin.example", 400},
		{hosts, "GET /", "admin.example..", 400},
		{hosts, "GET http://admin.example:80:80/", "h", 400},
		{free, "GET /", "admin.example:80:80", 400},
		{free, "GET /", "[::1]:8000", 200},
		{free, "POST /?_method=DELETE", "h", 200},
		{methods, "POST /items/7?x&_method=DELETE", "h", 400},
		{methods, "POST /items/7?%5Fmethod", "h", 400},
		{methods, "POST /items/7?.method[]=DELETE", "h", 400},
		{methods, "POST /items/7?my_method=DELETE", "h", 200},
		{methods, "POST /items/7?q=_method", "h", 200},
		{methods, "POST /items/7", "h\r\nX-HTTP-Method-Override: DELETE", 400},
		{methods, "POST /items/7", "h\r\nX_HTTP_Method: DELETE", 400},
		{paths, "POST /?_method=DELETE", "h", 200},
		{hosts, "POST /?_method=DELETE", "h", 200},
		{ignored, "POST /items/7?_method=DELETE", "h\r\nX-Method-Override: DELETE", 200},
		{hosts, "OPTIONS *", "other", 200},
	} {
		res, err := http.ReadResponse(raw(t, tt.g.addr, tt.target+" HTTP/1.1\r\nHost: "+tt.host+"\r\n\r\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != tt.status {
			t.Errorf("%s of %s is answered with %s, want %d", tt.target, tt.host, res.Status, tt.status)
		}
	}
}

// HTTP/2 has room for targets and hosts that no request line could have.
func TestHTTP2HasNoRoomForMore(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.RequestURI })
	g := serveGateway(t, decider(t, []policy.Rule{perKey(100)}), to(up.URL))
	for _, tt := range []struct {
		path, host string
		status     byte // the index of :status in HPACK's table
	}{
		{"/login", "h", 0x88},
		{"/log in", "h", 0x8c},
		{"/login?a b", "h", 0x8c},
		{"/login?a HTTP/1.0", "h", 0x8c},
		{"/login", "h:80:80", 0x8c},
	} {
		literal := func(s string) string { return string(rune(len(s))) + s }
		from := raw(t, g.addr, preface+frame(4, 0, 0, "")+frame(1, 5, 1, "\x82\x86\x04"+literal(tt.path)+"\x01"+literal(tt.host)))
		for {
			var head [9]byte
			if _, err := io.ReadFull(from, head[:]); err != nil {
				t.Fatalf("%q of %q: %v", tt.path, tt.host, err)
			}
			payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
			if _, err := io.ReadFull(from, payload); err != nil {
				t.Fatal(err)
			}
			if head[3] != 1 {
				continue
			}
			for payload[0]&0xe0 == 0x20 { // the size of the table
				payload = payload[1:]
			}
			if payload[0] != tt.status {
				t.Errorf("%q of %q is answered with the headers %q", tt.path, tt.host, payload)
			}
			break
		}
		if tt.status == 0x88 {
			<-got
		}
	}
}

// Keys behind any word are read where that is said, and the log is told where it is not.
func TestSchemesOfKeys(t *testing.T) {
	t.Parallel()
	log := new(journal)
	o := to(upstream(t, hello).URL)
	o.Logger = log.logger()
	usual := serveGateway(t, decider(t, []policy.Rule{perKey(1)}), o)
	o.Identity.APIKey = []string{"Authorization:Token", "authorization:ApiKey"}
	named := serveGateway(t, decider(t, []policy.Rule{perKey(1)}), o)
	o.Identity.APIKey = []string{"Authorization:*"}
	whatever := serveGateway(t, decider(t, []policy.Rule{perKey(1)}), o)
	c := client(t)
	for range 3 {
		get(t, c, usual.url+"/", "Authorization: Token k").wants(t, 200)
	}
	if n := strings.Count(log.String(), "credentials"); n != 1 || strings.Contains(log.String(), "Token k") {
		t.Errorf("the log is told %d times:\n%s", n, log)
	}
	get(t, c, named.url+"/", "Authorization: Token k").wants(t, 200)
	get(t, c, named.url+"/", "Authorization: apikey  k").wants(t, 429)
	get(t, c, named.url+"/", "Authorization: Token k 1").wants(t, 400)
	get(t, c, whatever.url+"/", "Authorization: k").wants(t, 200)
	get(t, c, whatever.url+"/", "Authorization: Foo k").wants(t, 429)
	get(t, c, whatever.url+"/", "Authorization: Bearer k").wants(t, 429)
}

// What a client calls the connection's own is not passed on: nobody gets rid of who it
// is counted as by that.
func TestIdentityThatTheConnectionTakesAway(t *testing.T) {
	t.Parallel()
	o := to(upstream(t, echo).URL)
	o.Identity.Resolver, o.Identity.Trusted = trusting(t), map[string]string{"user": "X-User"}
	g := serveGateway(t, decider(t, []policy.Rule{perKey(100)}), o)
	c := client(t)
	get(t, c, g.url+"/", "X-API-Key: k", "Connection: keep-alive, x-api-key").wants(t, 400)
	get(t, c, g.url+"/", "X-User: u", "Connection: close,X-User").wants(t, 400)
	get(t, c, g.url+"/", "Authorization: Bearer k", "Connection: Authorization").wants(t, 400)
	get(t, c, g.url+"/", "X-API-Key: k", "X-Mine: 1", "Connection: X-Mine").saw(t, "X-Api-Key: k", "X-Mine: ")
}

// One key is one client, however it is written.
func TestOneKeyIsOneClient(t *testing.T) {
	t.Parallel()
	o := to(upstream(t, echo).URL)
	g := serveGateway(t, decider(t, []policy.Rule{perKey(100)}), o)
	o.Identity.APIKey = []string{"X-Api-Key"}
	other := serveGateway(t, decider(t, []policy.Rule{perKey(100)}), o)
	c := client(t)
	for value, want := range map[string]int{
		"Bearer k": 200, "bearer   k": 200, "Bearer": 200, "Basic a b": 200, "Bearerk x": 200,
		"Bearer k 1": 400, "Bearer\tk": 400, "Bearer \tk": 400, "Bearer k\t1": 400, "BEARER k\xa01": 400, "Bearer\xa0k": 400, "Bearer k\x851": 400,
		"\xa0Bearer k": 400, "\x85Bearer k": 400, " Bearer k": 200,
	} {
		if a := get(t, c, g.url+"/", "Authorization: "+value); a.StatusCode != want {
			t.Errorf("%q: %s, want %d", value, a.Status, want)
		}
		// Where nobody counts by it, it is the server's to judge.
		get(t, c, other.url+"/", "Authorization: "+value).wants(t, 200)
	}
}

// Nothing by which servers are told of clients comes from a stranger, not even behind
// the body.
func TestForgedHeaders(t *testing.T) {
	t.Parallel()
	var trailer atomic.Value
	o := to(upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		trailer.Store(r.Trailer.Clone())
		echo(w, r)
	}).URL)
	r := trusting(t)
	o.Identity.Trusted = map[string]string{"user": "X-User"}
	o.Identity.Resolver = r
	g := serveGateway(t, decider(t, nil), o)
	const names = "X-User, X-Forwarded-User, X_Forwarded_User, X-Forwarded-For, Authorization"
	res, err := http.ReadResponse(raw(t, g.addr, "POST / HTTP/1.1\r\nHost: h\r\nTrailer: "+names+", X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"+
		"X-User: root\r\nX-Forwarded-User: root\r\nX_Forwarded_User: root\r\nX-Forwarded-For: 203.0.113.9\r\nX_Auth: 1\r\nX-Real-IP: 203.0.113.9\r\nAuthorization: Bearer x\r\nX-Sum: sum\r\n"+
		"Connection: X-Sum\r\nContent-Length: 7\r\nTransfer-Encoding: chunked\r\nTrailer: a\r\nTe: trailers\r\nHost: admin\r\nKeep-Alive: 1\r\n\r\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	got, _ := trailer.Load().(http.Header)
	for name := range got {
		if name != "X-Sum" && name != "X_auth" {
			t.Errorf("the server gets the trailer %s", name)
		}
	}
	if got.Get("X-Sum") != "sum" {
		t.Errorf("the trailers are %v", got)
	}

	o.Identity.Resolver, o.Identity.Trusted = nil, nil
	stranger := serveGateway(t, decider(t, nil), o)
	get(t, client(t), stranger.url+"/", "X-Forwarded-User: root", "X_Forwarded_Email: root", "X-Forwarded-Client-Cert: root", "Client-IP: 203.0.113.9", "X-Forward: stays").saw(t,
		"X-Forwarded-User: ", "X_forwarded_email: ", "X-Forwarded-Client-Cert: ", "Client-Ip: ", "X-Forward: stays")
}

// A server that changes the protocol unasked is answered for, and its connection
// closed.
func TestUpgradeThatNobodyAskedFor(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ended := make(chan error, 2)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
					ended <- err
					return
				}
				fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
				_ = c.SetReadDeadline(time.Now().Add(within))
				_, err := io.Copy(io.Discard, c)
				ended <- err
			}()
		}
	}()
	g := serveGateway(t, decider(t, nil), to("http://"+l.Addr().String()))
	get(t, client(t), g.url+"/").wants(t, 502)
	get(t, client(t), g.url+"/", "Connection: Upgrade", "Upgrade: websocket").wants(t, 502)
	for range 2 {
		if err := <-ended; err != nil {
			t.Errorf("the connection to the server ends with %v, want it closed", err)
		}
	}
}

// frame is a frame of HTTP/2.
func frame(kind, flags byte, stream uint32, payload string) string {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	return string(binary.BigEndian.AppendUint32(append(head, flags), stream)) + payload
}

const (
	preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	// getSlow is GET /slow of the host h with the API key k, in HPACK.
	getSlow = "\x82\x86\x04\x05/slow\x01\x01h\x00\x09x-api-key\x01k"
)

// A client that begins requests over HTTP/2 only to drop them, or never ends their
// headers, is cut off, and nothing of it stays.
func TestFloodsOfHTTP2(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for name, flood := range map[string]func(i uint32) string{
		"rapid resets": func(i uint32) string {
			return frame(1, 5, 2*i+1, getSlow) + frame(3, 0, 2*i+1, "\x00\x00\x00\x08")
		},
		"continuations": func(i uint32) string {
			if i == 0 {
				return frame(1, 1, 1, getSlow)
			}
			return frame(9, 0, 1, "\x00\x01a\x7f\x80\x3f"+strings.Repeat("x", 8191))
		},
		"streams": func(i uint32) string { return frame(1, 5, 2*i+1, getSlow) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := to(up.URL)
			o.Concurrency = []gatewayfile.Concurrency{{Name: "in-progress", Per: []policy.Part{{Entry: "api_key"}}, Limit: 1000}}
			g := serveGateway(t, decider(t, []policy.Rule{perKey(headgate.MaxCount)}), o)
			c := dial(t, g.addr)
			var answered atomic.Int64
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				n, _ := io.Copy(io.Discard, c)
				answered.Store(n)
			}()
			if _, err := io.WriteString(c, preface+frame(4, 0, 0, "")); err != nil {
				t.Fatal(err)
			}
			const most = 20_000
			for i := range uint32(most) {
				if _, err := io.WriteString(c, flood(i)); err != nil {
					break
				}
				if g.counts.inFlight.Load() > 2*maxStreams {
					t.Fatalf("%d requests are in progress over one connection", g.counts.inFlight.Load())
				}
			}
			_ = c.Close()
			<-closed
			g.nothingIsLeft(t)
		})
	}
}

// nothingIsLeft waits until all that requests hold is back.
func (f *fixture) nothingIsLeft(t *testing.T) {
	t.Helper()
	in := f.current.Load()
	eventually(t, "nothing is in progress", func() bool {
		n := f.counts.inFlight.Load() + int64(f.upgrades.count())
		for _, s := range append(f.own.Stats(), f.keeper.Stats()...) {
			n += s.Keys
		}
		for _, p := range in.pools {
			for _, target := range p.targets {
				n += target.inFlight.Load()
			}
		}
		return n == 0
	})
}

// unsteady is a decider that fails now and then, in every way.
type unsteady struct{ *decide.Over }

func (u unsteady) Take(ctx context.Context, ask *decide.Ask, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := u.fail(); err != nil {
		return dst, err
	}
	return u.Over.Take(ctx, ask, dst)
}

func (unsteady) fail() error {
	switch rand.IntN(20) {
	case 0:
		panic("a defect")
	case 1:
		return headgate.ErrUnavailable
	}
	return nil
}

// However requests end, their permits come back.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/cut":
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "/hints":
			for range 50 {
				w.WriteHeader(http.StatusEarlyHints)
			}
		case "/hang":
			// Only then does this server see that the gateway has gone.
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		case "/events":
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, "data: x\n\n"); err != nil {
					return
				}
				_ = http.NewResponseController(w).Flush()
			}
		case "/upgrade":
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			_ = rw.Flush()
			_, _ = io.CopyN(conn, rw, 3)
		case "/huge":
			for i := range 40 {
				w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("x", 10_000))
			}
		case "/early":
			_ = http.NewResponseController(w).EnableFullDuplex()
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.Copy(w, io.LimitReader(zeros{}, 100_000))
	})
	d := decider(t, []policy.Rule{perKey(headgate.MaxCount)})
	o := to(up.URL, closedTarget(t))
	o.MaxBody = 10_000
	// A client that has sent the next request already is not seen to leave: the server
	// would have to read on for that.
	o.Upstreams[0].Timeouts.ResponseHeader, o.Upstreams[0].Timeouts.Idle = 500*time.Millisecond, 500*time.Millisecond
	o.Clients.Body, o.Clients.Response = 50*time.Millisecond, 200*time.Millisecond
	o.Settle = []gatewayfile.Settle{{Rule: "per-key", Estimate: 100}}
	o.Concurrency = []gatewayfile.Concurrency{
		{Name: "each", Per: []policy.Part{{Entry: "api_key"}}, Limit: 20},
		{Name: "all", Limit: 30},
		{Name: "none", Match: []policy.Condition{policy.Equal("path", "/refused")}, Limit: 1},
	}
	g := serveGateway(t, unsteady{d}, o)
	paths := []string{"/", "/cut", "/hints", "/hang", "/events", "/upgrade", "/huge", "/early", "/refused", "/a;b"}
	request := func(random *rand.Rand) string {
		text := paths[random.IntN(len(paths))] + " HTTP/1.1\r\nHost: h\r\nX-API-Key: k" + fmt.Sprint(random.IntN(3)) + "\r\n"
		switch random.IntN(6) {
		case 0:
			return "GET " + text + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\nabcdef"
		case 1:
			return "POST " + text + "Content-Length: 20000\r\n\r\n" + strings.Repeat("x", 20_000)
		case 2:
			return "POST " + text + "Content-Length: 5000\r\nExpect: 100-continue\r\n\r\n" + strings.Repeat("x", 5000)
		case 3:
			return "POST " + text + "Transfer-Encoding: chunked\r\n\r\n7d0\r\n" + strings.Repeat("x", 2000) + "\r\nzz\r\n"
		case 4:
			return "POST " + text + "Transfer-Encoding: chunked\r\nTrailer: X-A\r\n\r\n7d0\r\n" + strings.Repeat("x", 2000) + "\r\n0\r\nX-A: b\r\n\r\n"
		}
		return "GET " + text + "\r\n"
	}
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 11))
			for range 60 {
				c, err := net.DialTimeout("tcp", g.addr, within)
				if err != nil {
					t.Error(err)
					return
				}
				_ = c.SetDeadline(time.Now().Add(within))
				text := request(random) + request(random)
				if random.IntN(2) == 0 {
					text = text[:random.IntN(len(text))]
				}
				_, _ = io.WriteString(c, text)
				_ = c.SetReadDeadline(time.Now().Add(time.Duration(random.IntN(20)) * time.Millisecond))
				_, _ = io.CopyN(io.Discard, c, int64(random.IntN(200_000)))
				switch random.IntN(3) {
				case 0:
					_ = c.(*net.TCPConn).SetLinger(0) // it is reset
				case 1:
					_ = c.(*net.TCPConn).CloseWrite()
				}
				_ = c.Close()
			}
		})
	}
	all.Wait()
	g.nothingIsLeft(t)
	eventually(t, "no connection is open", func() bool { return g.counts.conns.Load() == 0 })
}
