package app

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/flow"

	"github.com/headgate/headgate/config/gatewayfile"
)

// shop is an upstream server that answers with the headers that it is asked for.
func shop(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.URL.Path, " ", r.Header.Get("X-User"))
	}))
	t.Cleanup(s.Close)
	return s
}

// passed asks the gateway, over connections of the client's own.
func (r *running) passed(t *testing.T, config *tls.Config, path string, headers ...string) (*http.Response, string) {
	t.Helper()
	scheme := "http"
	if config != nil {
		scheme = "https"
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+"://"+r.Addr("gateway").String()+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(text)
}

const itemRules = "rules:\n  - name: items\n    match: { route: \"GET /items/{id}\" }\n    per: [ip]\n    limits: [%s]\n"

func TestGateway(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "policy.yml")
	write(t, file, fmt.Sprintf(itemRules, "2 per 1h"))
	up := shop(t)
	r := start(t, Settings{
		PolicyFile: file, AccessLog: true, lookEvery: 5 * time.Millisecond,
		Gateway: &GatewaySettings{Listen: "127.0.0.1:0", Upstreams: []string{up.URL}, Trust: []string{"127.0.0.1"}, TrustHeader: "X-Real-IP"},
	})
	for i, want := range []string{"200 1", "200 0", "429 0"} {
		response, _ := r.passed(t, nil, fmt.Sprint("/items/", i), "X-Real-IP", "203.0.113.7")
		if got := fmt.Sprint(response.StatusCode, " ", response.Header.Get("X-RateLimit-Remaining")); got != want {
			t.Errorf("request %d: %s, want %s", i+1, got, want)
		}
	}
	r.metrics(t, `headgate_gateway_requests_total{outcome="passed",status="2xx"} 2`, `headgate_gateway_requests_total{outcome="denied",status="4xx"} 1`,
		`headgate_gateway_target_up{target="`+up.URL+`",upstream="default"} 1`, `headgate_decisions_total{limit="2 per 1h",outcome="denied",rule="items"} 1`)

	// A policy takes effect without a restart, unless it names routes that cannot be
	// told from each other.
	replace(t, file, fmt.Sprintf(itemRules, "9 per 1h")+"  - { name: a, match: { route: [\"GET /{a}/b\", \"GET /c/{d}\"] }, per: all, limits: [1 per 1h] }\n")
	r.logs(t, "conflicts with")
	if limit := r.limit(); limit != "2 per 1h, version 1" {
		t.Errorf("in force is %s", limit)
	}
	replace(t, file, fmt.Sprintf(itemRules, "5 per 1h"))
	r.until(t, "5 per 1h, version 2")
	if response, _ := r.passed(t, nil, "/items/7", "X-Real-IP", "203.0.113.7"); response.StatusCode != 200 || response.Header.Get("X-RateLimit-Remaining") != "2" {
		t.Errorf("after the change: %s, %v", response.Status, response.Header)
	}
	r.stop()
	if err := <-r.ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if !strings.Contains(r.log.String(), "route=\"GET /items/{id}\" from=203.0.113.7 status=200 verdict=passed") {
		t.Errorf("the log is %s", r.log)
	}
}

// Clients with certificates are counted by them, and the upstream server is told of
// them.
func TestGatewayOverTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, "ours")
	a.server(t, "server")
	file := filepath.Join(a.dir, "gateway.yml")
	// Files in it are beside it; the upstream server is of the same authority.
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("X-User"), " ", r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	pair, err := tls.LoadX509KeyPair(a.file("server.pem"), a.file("server.key"))
	if err != nil {
		t.Fatal(err)
	}
	trust := a.trusting()
	up.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: trust.RootCAs, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
	up.StartTLS()
	t.Cleanup(up.Close)
	client := a.client(t)
	write(t, file, fmt.Sprintf(`
upstreams:
  - name: safe
    targets: [%s]
    tls: { ca: ca.pem, cert: client.pem, key: client.key }
    timeouts: { dial: 30s }
identity: { certificate: { user: common_name } }
request_headers: { set: { X-User: "{user}" } }
`, up.URL))
	policy := filepath.Join(a.dir, "policy.yml")
	write(t, policy, "rules:\n  - name: users\n    per: [user]\n    limits: [7 per 1h]\n")
	r := start(t, Settings{
		PolicyFile: policy, TLSCert: a.file("server.pem"), TLSKey: a.file("server.key"), TLSClientCA: a.file("ca.pem"),
		Gateway: &GatewaySettings{Listen: "127.0.0.1:0", File: file},
	})
	response, text := r.passed(t, a.trusting(client), "/", "X-User", "forged")
	if response.StatusCode != 200 || response.ProtoMajor != 2 || response.Header.Get("X-RateLimit-Limit") != "7" || text != "client client" {
		t.Errorf("%s %s, %v, %q", response.Proto, response.Status, response.Header, text)
	}
	// Without a certificate there is no way in.
	conn, err := tls.Dial("tcp", r.Addr("gateway").String(), a.trusting())
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
		_ = conn.Close()
	}
	if err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a client without a certificate gets %v", err)
	}
}

// Everything in a gateway file reaches the gateway.
func TestGatewayFile(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, "ours")
	a.client(t)
	text, err := os.ReadFile("../../config/testdata/gateway/everything.yml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(a.dir, "gateway.yml")
	write(t, file, strings.NewReplacer("cert: cert.pem, key: key.pem", "cert: client.pem, key: client.key", "keys: https://issuer.example/keys", "keys: keys.json").Replace(string(text)))
	o, _, err := gatewayOptions(&GatewaySettings{File: file})
	if err != nil {
		t.Fatal(err)
	}
	complete, _ := o.WithDefaults()
	first, second := &o.Upstreams[0], &o.Upstreams[1]
	for what, ok := range map[string]bool{
		"pool":        first.Name == "api" && len(first.Targets) == 2 && first.Balance == gatewayfile.LeastConnections && first.TargetHost && first.TLS == nil,
		"health":      *first.Health == gatewayfile.Health{Path: "/healthz", Every: 2 * time.Second, Timeout: 500 * time.Millisecond, UpAfter: 1, DownAfter: 4},
		"eject":       first.Eject == gatewayfile.Eject{After: 3, For: 5 * time.Second},
		"timeouts":    first.Timeouts == gatewayfile.Timeouts{Dial: time.Second, ResponseHeader: 90 * time.Second, Idle: 10 * time.Minute, KeepAlive: 20 * time.Second},
		"tls":         second.TLS.ServerName == "reports" && len(second.TLS.Certificates) == 1 && second.TLS.RootCAs != nil && second.Health == nil && second.Balance == gatewayfile.RoundRobin,
		"routes":      len(o.Routes) == 4 && o.Routes[2].Name == "reports" && o.Routes[2].Upstream == "reports" && o.Routes[2].MaxBody == -1 && o.Routes[2].Request.Set[0] == gatewayfile.Header{Name: "X-Report", Value: "1"} && o.Routes[3].Response.Remove[0] == "Server",
		"identity":    o.Identity.APIKey[0] == "X-Key" && o.Identity.Headers["tenant"] == "X-Tenant" && o.Identity.Trusted["user"] == "X-User" && o.Identity.Certificate["device"] == gatewayfile.Fingerprint && complete.Identity.Resolver.Source() == "Forwarded",
		"jwt":         o.Identity.JWT.Keys == filepath.Join(a.dir, "keys.json") && o.Identity.JWT.Algorithms[0] == "ES256" && o.Identity.JWT.Issuer == "https://issuer.example" && o.Identity.JWT.Audience == "api" && o.Identity.JWT.Header == "X-Token" && o.Identity.JWT.Leeway == 10*time.Second && o.Identity.JWT.Refresh == time.Hour && o.Identity.JWT.Claims["subject"] == "sub" && o.Identity.JWT.Required,
		"load":        first.Load.Max == 400 && first.Load.Shadow && *o.Routes[0].Load.Class == flow.SheddablePlus && o.Routes[1].Load.Exempt && len(o.Pressure) == 2,
		"concurrency": len(o.Concurrency) == 2 && o.Concurrency[0].Limit == 10 && len(o.Concurrency[0].Per) == 2 && len(o.Concurrency[0].Match) == 1 && o.Concurrency[1].Name == "all",
		"headers":     o.Request.Remove[0] == "Cookie" && o.Request.Set[1] == gatewayfile.Header{Name: "X-Tier", Entry: "tier"} && len(o.Response.Remove) == 2,
		"bounds":      o.MaxBody == 10<<20 && o.MaxHeader == 16<<10 && o.MaxDelay == 3*time.Second && len(o.Upgrades) == 2 && o.Connections == gatewayfile.Connections{Total: 100_000, PerAddress: 50},
		"clients":     o.Clients == gatewayfile.Clients{Header: 5 * time.Second, Body: 20 * time.Second, MinRate: 1 << 10, Response: 15 * time.Second, Idle: time.Minute, Upgraded: time.Hour},
	} {
		if !ok {
			t.Errorf("%s is not what the file says: %+v", what, o)
		}
	}
}

// Mistakes are told before an address is bound, so they are told where one is taken.
func TestGatewayMistakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	bad, policy, keys := filepath.Join(dir, "bad.yml"), filepath.Join(dir, "policy.yml"), filepath.Join(dir, "keys.yml")
	write(t, bad, "upstreams:\n  - name: a\n    targets: [http://127.0.0.1:1]\n    tls: { ca: absent.pem, cert: absent.pem, key: absent.key }\nidentity: { address: { trust: [10.0.0.0/8] } }\n")
	write(t, policy, "rules:\n  - name: a\n    match: { route: \"GET /{\" }\n    per: all\n    limits: [1 per 1h]\n")
	write(t, keys, "upstreams:\n  - name: a\n    targets: [http://127.0.0.1:1]\nidentity: { jwt: { keys: absent.json } }\n")
	one := []string{"http://127.0.0.1:1"}
	for _, tt := range []struct {
		settings Settings
		want     []string
	}{
		{Settings{Gateway: &GatewaySettings{Upstreams: one}}, []string{`gateway listen: "" is not host:port`}},
		{Settings{Gateway: &GatewaySettings{Listen: ":0"}}, []string{"there is no upstream"}},
		{Settings{Gateway: &GatewaySettings{Listen: ":0", Upstreams: []string{"ftp://a", "ftp://a"}}}, []string{"ftp://a"}},
		{Settings{Gateway: &GatewaySettings{Listen: ":0", Upstreams: one, TrustHeader: "X-Y"}}, []string{"none of them is trusted"}},
		{Settings{Gateway: &GatewaySettings{Listen: ":0", Upstreams: one, Trust: []string{"0.0.0.0/0"}}}, []string{"every address"}},
		{Settings{Gateway: &GatewaySettings{Listen: ":0", File: bad, Upstreams: one, Trust: []string{"127.0.0.1"}}}, []string{"has upstreams, and so has the command", "trusted, and so does the command", "absent.pem", "absent.key"}},
		{Settings{Gateway: &GatewaySettings{Listen: ":0", File: filepath.Join(dir, "absent.yml")}}, []string{"gateway file: open"}},
		// What is wrong with several flags is said at once, before any file is read.
		{
			Settings{Listen: "nowhere", Store: "ftp://a", Gateway: &GatewaySettings{Listen: "here", Upstreams: []string{"ftp://b", "http://c"}, Trust: []string{"0.0.0.0/0"}, TrustHeader: "a b"}},
			[]string{`listen: "nowhere"`, `gateway listen: "here"`, "gateway: the upstream \"default\": the target \"ftp://b\"", "every address", `"a b"`, "--store: "},
		},
		{Settings{Listen: "nowhere", Gateway: &GatewaySettings{Listen: ":0", TrustHeader: "X-Y"}}, []string{`listen: "nowhere"`, "there is no upstream", "none of them is trusted"}},
		{
			Settings{Listen: "nowhere", Gateway: &GatewaySettings{Listen: ":0", File: filepath.Join(dir, "absent.yml"), Upstreams: []string{"ftp://b"}, Trust: []string{"x"}}},
			[]string{`listen: "nowhere"`, "ftp://b", `"x"`},
		},
		{Settings{Gateway: &GatewaySettings{Listen: "here", File: filepath.Join(dir, "absent.yml"), TrustHeader: "X-Y"}}, []string{`gateway listen: "here"`}},
		{Settings{PolicyFile: policy, Gateway: &GatewaySettings{Listen: ":0", Upstreams: one}}, []string{`the policy and the gateway: rule "a": the route "GET /{" is no pattern`}},
	} {
		if tt.settings.Listen == "" {
			tt.settings.Listen = taken.Addr().String()
		}
		_, err := New(t.Context(), tt.settings)
		if _, ok := errors.AsType[*SettingsError](err); !ok {
			t.Errorf("%+v: the error is %v", tt.settings.Gateway, err)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error is\n%v\nand lacks %q", err, want)
			}
		}
	}
	if _, err := New(t.Context(), Settings{Listen: taken.Addr().String(), Gateway: &GatewaySettings{Listen: ":0", File: keys}}); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), filepath.Join(dir, "absent.json")) {
		t.Errorf("keys that are not there give %v", err)
	}
	var file *GatewayFileError
	write(t, bad, "identity: { address: { trust: [10.0.0.1/8] } }\n")
	if _, err := New(t.Context(), Settings{Listen: taken.Addr().String(), Gateway: &GatewaySettings{Listen: ":0", File: bad, Upstreams: one}}); !errors.As(err, &file) || !strings.Contains(err.Error(), "bad.yml:1:") || !strings.Contains(err.Error(), "10.0.0.1/8") {
		t.Errorf("a proxy with bits beyond its prefix gives %v", err)
	}
	write(t, bad, "upstreams: {}")
	var mistakes *config.Error
	if _, err := New(t.Context(), Settings{Listen: taken.Addr().String(), Gateway: &GatewaySettings{Listen: ":0", File: bad}}); !errors.As(err, &file) || !errors.As(err, &mistakes) {
		t.Errorf("a file with a mistake gives %v", err)
	}
	if _, err := New(t.Context(), Settings{Listen: "127.0.0.1:0", Gateway: &GatewaySettings{Listen: taken.Addr().String(), Upstreams: one}}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("an address that is taken gives %v", err)
	}
}

// What a gateway file may name as an algorithm is what tokens may be signed by.
func TestGatewayAlgorithms(t *testing.T) {
	t.Parallel()
	all := gatewayfile.Algorithms()
	text := "identity: { jwt: { keys: k, algorithms: [" + strings.Join(all, ", ") + "] } }"
	g, err := config.ParseGateway("all.yml", []byte(text))
	if err != nil || len(g.Identity.JWT.Algorithms) != len(all) {
		t.Errorf("%v", err)
	}
}
