package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// A rule may give back what a request has cost, by the status that it ended with.
func TestChargedByTheOutcome(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/304":
			w.WriteHeader(http.StatusNotModified)
		case "/500":
			w.WriteHeader(http.StatusInternalServerError)
		case "/cut":
			_, _ = io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	})
	rule := perKey(10)
	rule.GiveBackOn = policy.Statuses{{First: 304, Last: 304}, {First: 413, Last: 413}, {First: 500, Last: 599}}
	never := policy.Rule{Limits: headgate.MustRule("never", headgate.PerHour(100))}
	d := decider(t, []policy.Rule{rule, never})
	o := to(up.URL)
	o.MaxBody = 5
	g := serveGateway(t, d, o)
	c := client(t)
	left := func() (key, all int64) {
		checks := []headgate.Check{{Rule: rule.Limits, Key: keyOf(t, d, "k")}, {Rule: never.Limits}}
		decisions, err := d.Store.Take(t.Context(), headgate.OpPeek, checks, nil)
		if err != nil {
			t.Fatal(err)
		}
		return decisions[0].Remaining, decisions[1].Remaining
	}
	for i, tt := range []struct {
		path, body string
		status     int
		left       int64
	}{
		{"/", "", 200, 9},
		{"/304", "", 304, 9},
		{"/500", "", 500, 9},
		{"/", "too large", 413, 9},
		{"/404", "", 200, 8},
		{"/cut", "", 200, 7}, // what the client got was a 200
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+tt.path, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-API-Key", "k")
		res, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode != tt.status {
			t.Errorf("%s is answered with %s, want %d", tt.path, res.Status, tt.status)
		}
		eventually(t, tt.path+" is settled", func() bool {
			key, all := left()
			return key == tt.left && all == int64(99-i)
		})
	}
}

// keyOf is what the rule per-key counts an API key under.
func keyOf(t *testing.T, d *decide.Over, key string) string {
	t.Helper()
	c, err := d.Rules().Check("per-key", key, 1)
	if err != nil {
		t.Fatal(err)
	}
	return c.Key
}

// A client is told that it comes near a limit.
func TestWarning(t *testing.T) {
	t.Parallel()
	rule := perKey(4)
	rule.Soft = 50
	g := serveGateway(t, decider(t, []policy.Rule{rule}), to(upstream(t, hello).URL))
	c := client(t)
	for _, want := range []string{"", `"per-key"`, `"per-key"`, `"per-key"`} {
		get(t, c, g.url+"/", "X-API-Key: k").wants(t, 200, "X-RateLimit-Warning: "+want)
	}
	get(t, c, g.url+"/", "X-API-Key: k").wants(t, 429, "X-RateLimit-Warning: ")
}

// opened decides without the store.
type opened struct{ *decide.Over }

func (o opened) Take(ctx context.Context, ask *decide.Ask, dst []headgate.Decision) ([]headgate.Decision, error) {
	out, err := o.Over.Take(ctx, ask, dst)
	for i := range out {
		out[i].Source = headgate.SourceOpen
	}
	return out, err
}

// A request that was let in because nothing could be decided says so.
func TestDecidedByNobody(t *testing.T) {
	t.Parallel()
	g := serveGateway(t, opened{decider(t, []policy.Rule{perKey(4)})}, to(upstream(t, hello).URL))
	get(t, client(t), g.url+"/", "X-API-Key: k").wants(t, 200, "X-RateLimit-Unenforced: store-unavailable")
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "ec")
	o := withJWT(to(upstream(t, hello).URL, closedTarget(t)), keyFile(t, i.set(t, "", "ec")))
	o.Upstreams[0].Name = "shop"
	o.Upstreams[0].Eject = gatewayfile.Eject{After: 1, For: time.Hour}
	o.Concurrency = []gatewayfile.Concurrency{{Name: "none", Limit: 1, Match: []policy.Condition{policy.Equal("path", "/busy")}}}
	g := serveGateway(t, decider(t, []policy.Rule{perKey(2)}), o)
	c := client(t)
	for range 3 {
		get(t, c, g.url+"/", "X-API-Key: k")
	}
	get(t, c, g.url+"/", "Authorization: Bearer a.b.c").wants(t, 401)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(g)
	w := httptest.NewRecorder()
	// A client may make a second connection while the first one is not free yet.
	eventually(t, "all have ended", func() bool { return g.counts.inFlight.Load() == 0 && g.counts.conns.Load() == 1 })
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	good, bad := o.Upstreams[0].Targets[0], o.Upstreams[0].Targets[1]
	for _, want := range []string{
		`headgate_gateway_requests_total{outcome="passed",status="2xx"} 2`, `headgate_gateway_requests_total{outcome="denied",status="4xx"} 1`,
		`headgate_gateway_requests_total{outcome="refused",status="4xx"} 1`, `headgate_gateway_answers_total{status="2xx"} 2`,
		`headgate_gateway_target_up{target="` + good + `",upstream="shop"} 1`, `headgate_gateway_target_up{target="` + bad + `",upstream="shop"} 0`,
		`headgate_gateway_target_requests_total{target="` + good + `",upstream="shop"} 2`, `headgate_gateway_target_failures_total{target="` + bad + `",upstream="shop"} 1`,
		`headgate_gateway_target_requests_in_flight{target="` + bad + `",upstream="shop"} 0`, `headgate_gateway_connections 1`, `headgate_gateway_connections_refused_total 0`,
		`headgate_gateway_token_keys_last_read_failed 0`, `headgate_gateway_token_keys_last_read_timestamp_seconds 1.`, `headgate_gateway_requests_in_flight 0`, `headgate_gateway_upgraded_connections 0`,
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("the metrics lack %s:\n%s", want, w.Body)
		}
	}
}

// Only a certificate that was verified says who a client is.
func TestCertificates(t *testing.T) {
	t.Parallel()
	spiffe := &url.URL{Scheme: "spiffe", Host: "example", Path: "/shop"}
	c := &x509.Certificate{Raw: []byte("der"), Subject: pkix.Name{CommonName: "cn"}, DNSNames: []string{"a.example", "b"}, EmailAddresses: []string{"a@example"}, URIs: []*url.URL{spiffe}}
	verified := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}, VerifiedChains: [][]*x509.Certificate{{c}}}
	for field, want := range map[gatewayfile.CertificateField]string{
		gatewayfile.CommonName: "cn", gatewayfile.DNSName: "a.example", gatewayfile.Email: "a@example", gatewayfile.URI: "spiffe://example/shop",
		gatewayfile.Fingerprint: "", gatewayfile.Fingerprint + 1: "",
	} {
		if sum := sha256.Sum256(c.Raw); field == gatewayfile.Fingerprint {
			want = hex.EncodeToString(sum[:])
		}
		if got := certified(&http.Request{TLS: verified}, field); got != want {
			t.Errorf("field %d is %q, want %q", field, got, want)
		}
		for _, state := range []*tls.ConnectionState{nil, {}, {PeerCertificates: verified.PeerCertificates}} {
			if got := certified(&http.Request{TLS: state}, field); got != "" {
				t.Errorf("field %d of nobody is %q", field, got)
			}
		}
	}
	empty := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}, VerifiedChains: verified.VerifiedChains}
	for _, field := range []gatewayfile.CertificateField{gatewayfile.CommonName, gatewayfile.DNSName, gatewayfile.Email, gatewayfile.URI} {
		if got := certified(&http.Request{TLS: empty}, field); got != "" {
			t.Errorf("field %d of an empty certificate is %q", field, got)
		}
	}
}
