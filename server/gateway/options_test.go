package gateway

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/policy"
)

// Every mistake is told at once.
func TestMistakes(t *testing.T) {
	t.Parallel()
	one := []gatewayfile.Upstream{{Targets: []string{"http://127.0.0.1:1"}}}
	for _, tt := range []struct {
		name    string
		options Options
		want    []string
	}{
		{"nothing", Options{}, []string{"there are 0 upstreams"}},
		{"upstreams", Options{Settings: gatewayfile.Settings{Upstreams: []gatewayfile.Upstream{
			{Name: "a", Targets: []string{"http://127.0.0.1:1", "http://127.0.0.1:1", "ftp://x", "://", "http://u:geheim@h:1", "http://h/x", "http:opaque", "http://h:65536", "http://h:00", "http://u:geheim@:80", "ftp://u:geheim@x"}, Balance: 9},
			{Name: "a", Timeouts: gatewayfile.Timeouts{Dial: time.Nanosecond, Idle: 48 * time.Hour}, Eject: gatewayfile.Eject{After: -1}, Health: &gatewayfile.Health{Path: "healthz", UpAfter: -1, Every: -1}},
		}}}, []string{
			`upstream "a" has the target http://127.0.0.1:1 twice`, `"ftp://x" begins with neither`, `"://" is not http://host:port`, "the target at h:1 has a user in it", `"http://h/x" has more than a host`,
			`"http:opaque" is not`, "the target at h has the port 65536, must be", "has the port 00", `":80" is not`, "balance 9 is unknown", `upstream "a" is there twice`, "has 0 targets", "the time to dial is 1ns, must be 1ms to 24h", "may pause is 48h", "after -1 failures", `"healthz", must be a path`, "up after -1", "between looks is -1ns",
		}},
		{"routes", Options{Settings: gatewayfile.Settings{Upstreams: one, Routes: []gatewayfile.Route{
			{Pattern: "GET /{"}, {Pattern: "GET /a/{x}/b"}, {Pattern: "GET /a/b/{x}", Upstream: "gone"},
		}}}, []string{`the route "GET /{" is no pattern`, `"GET /a/b/{x}" conflicts with "GET /a/{x}/b"`, `goes to the upstream "gone", which is not there`}},
		{"headers", Options{Settings: gatewayfile.Settings{Upstreams: one, Request: gatewayfile.Headers{
			Remove: []string{"Transfer-Encoding", "a b", ""},
			Set:    []gatewayfile.Header{{Name: "Host", Value: "h"}, {Name: "X-A"}, {Name: "X-B", Value: "x", Entry: "ip"}, {Name: "X-C", Value: "a\nb"}, {Name: "X-D", Entry: "nobody"}},
		}, Response: gatewayfile.Headers{Remove: make([]string, gatewayfile.MaxChanges+1)}}}, []string{
			"the header Transfer-Encoding is the connection's own", `"a b" is not the name of a header`, `"" is not the name`, "the header Host is the connection's own", "the header X-A has both", "the header X-B has both",
			"the header X-C has a control character", `the header X-D is set from the entry "nobody", which no request has`, "65 headers are removed",
		}},
		{"identity", Options{Settings: gatewayfile.Settings{Upstreams: one, Identity: gatewayfile.Identity{
			APIKey: []string{"a b"}, Headers: map[string]string{"ip": "X-IP", "user": "X-User", "": "X", "bad": "a b"}, Trusted: map[string]string{"user": "X-U"},
			Certificate: map[string]gatewayfile.CertificateField{"user": gatewayfile.CommonName, "c": 99},
			JWT:         &gatewayfile.JWT{Algorithms: []string{"HS256", "none"}, Header: "a b", Leeway: time.Hour, Refresh: time.Millisecond, Claims: map[string]string{"user": "sub", "t": ""}},
		}}}, []string{
			`"a b" is not the name of a header`, `the entry "ip" is found by the gateway itself`, `"" is not the name of an entry`, `the entry "bad" is taken from "a b"`, `the entry "user" is taken from a header and from a trusted header`,
			"no proxy is trusted", "field 99 of a certificate", "tokens need keys", `the algorithm "HS256" of tokens is not one of RS256`, `"none"`, "tokens come in", "may differ by 1h0m0s, must be at most 5m0s", "fetched every 1ms",
			`the entry "t" is taken from a claim without a name`,
		}},
		{"no algorithm", Options{Settings: gatewayfile.Settings{Upstreams: one, Identity: gatewayfile.Identity{JWT: &gatewayfile.JWT{Keys: "k", Algorithms: []string{}}}}}, []string{"no algorithm"}},
		{"concurrency", Options{Settings: gatewayfile.Settings{Upstreams: one, Concurrency: []gatewayfile.Concurrency{
			{Name: "a", Limit: 0}, {Name: "a", Limit: 1}, {Name: "b c", Limit: 1}, {Name: "d", Limit: gatewayfile.MaxConcurrency + 1}, {Name: "e", Limit: 1, Per: make([]policy.Part, policy.MaxParts+1)},
		}}}, []string{`"a": the limit is 0`, `"a" is there twice`, `"b c": the name has`, `"d": the limit is 1000001`, `concurrency "e": `}},
		{"bounds", Options{Settings: gatewayfile.Settings{Upstreams: one, MaxBody: -1, MaxHeader: 10, Clients: gatewayfile.Clients{Header: -1, Body: time.Nanosecond}, Connections: gatewayfile.Connections{Total: -1}, Upgrades: []string{"H2C", "a b"}}}, []string{
			"bodies is -1 bytes", "headers is 10 bytes, must be 1024 to 1048576", "the time for headers is -1ns", "the time for a body is 1ns", "there may be -1", `upgraded to "H2C"`, `upgraded to "a b"`,
		}},
	} {
		g, err := New(t.Context(), decider(t, nil), tt.options)
		if err == nil {
			g.Close()
		}
		var invalid *headgate.InvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("%s: the error is %v", tt.name, err)
			continue
		}
		all := strings.Join(invalid.Problems.Texts(), "\n")
		for _, want := range tt.want {
			if !strings.Contains(all, want) {
				t.Errorf("%s: the problems are\n%s\nand lack %q", tt.name, all, want)
			}
		}
		if strings.Contains(all, "geheim") {
			t.Errorf("%s: a secret is in %s", tt.name, all)
		}
	}
	if _, err := New(t.Context(), nil, Options{Settings: gatewayfile.Settings{Upstreams: one}}); err == nil || !strings.Contains(err.Error(), "nobody to decide") {
		t.Errorf("without a decider: %v", err)
	}
}

// The options are the caller's to use again.
func TestOptionsAreNotChanged(t *testing.T) {
	t.Parallel()
	remove := []string{"x-a"}
	claims := map[string]string{"user": "x-user"}
	o := to("http://127.0.0.1:1")
	o.Request.Remove, o.Identity.Headers, o.Upgrades = remove, claims, []string{"MQTT"}
	g, err := New(t.Context(), decider(t, nil), o)
	if err != nil {
		t.Fatal(err)
	}
	g.Close()
	g.Close() // closing again does nothing
	if remove[0] != "x-a" || claims["user"] != "x-user" || o.Upgrades[0] != "MQTT" || o.Upstreams[0].Name != "" {
		t.Errorf("the options have become %+v", o)
	}
}
