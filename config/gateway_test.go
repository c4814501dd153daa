package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
)

func gatewaySchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(GatewaySchema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("gateway.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("gateway.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestGatewayFile(t *testing.T) {
	t.Parallel()
	const file = "testdata/gateway/everything.yml"
	got, err := ReadGateway(file)
	if err != nil {
		t.Fatal(err)
	}
	want := &gatewayfile.Settings{
		Upstreams: []gatewayfile.Upstream{
			{
				Name: "api", Targets: []string{"http://127.0.0.1:9001", "h2c://127.0.0.1:9002"}, Balance: gatewayfile.LeastConnections, TargetHost: true,
				Health:   &gatewayfile.Health{Path: "/healthz", Every: 2 * time.Second, Timeout: 500 * time.Millisecond, UpAfter: 1, DownAfter: 4},
				Eject:    gatewayfile.Eject{After: 3, For: 5 * time.Second},
				Load:     &gatewayfile.Load{Initial: 30, Min: 2, Max: 400, Ceiling: 2 * time.Second, Queue: 500, Wait: 50 * time.Millisecond, Class: "class", Tenant: "subject", Shadow: true},
				Timeouts: gatewayfile.Timeouts{Dial: time.Second, ResponseHeader: 90 * time.Second, Idle: 10 * time.Minute, KeepAlive: 20 * time.Second},
			},
			{
				Name: "reports", Targets: []string{"https://reports.internal:8443"},
				Files: gatewayfile.TLSFiles{CA: "ca.pem", Cert: "cert.pem", Key: "key.pem", ServerName: "reports"},
			},
		},
		Routes: []gatewayfile.Route{
			{Pattern: "GET /items/{id}", Load: gatewayfile.RouteLoad{Class: new(flow.SheddablePlus)}},
			{Pattern: "GET /poll", Load: gatewayfile.RouteLoad{Exempt: true}},
			{Pattern: "/reports/", Name: "reports", Upstream: "reports", MaxBody: -1, Request: gatewayfile.Headers{Set: []gatewayfile.Header{{Name: "X-Report", Value: "1"}}}},
			{Pattern: "POST /upload", MaxBody: 1 << 30, Response: gatewayfile.Headers{Remove: []string{"Server"}}},
		},
		Paths: httplimit.EncodedSlashes | httplimit.CutParameters,
		Identity: gatewayfile.Identity{
			Address: gatewayfile.Address{Header: "Forwarded", Trust: []string{"10.0.0.0/8", "unix"}}, APIKey: []string{"X-Key"},
			Headers: map[string]string{"tenant": "X-Tenant"}, Trusted: map[string]string{"user": "X-User", "class": "Headgate-Class"},
			Certificate: map[string]gatewayfile.CertificateField{"device": gatewayfile.Fingerprint},
			JWT: &gatewayfile.JWT{
				Keys: "https://issuer.example/keys", Algorithms: []string{"ES256"}, Issuer: "https://issuer.example", Audience: "api", Header: "X-Token",
				Leeway: 10 * time.Second, Refresh: time.Hour, Claims: map[string]string{"subject": "sub", "tier": "https://issuer.example/tier"}, Required: true,
			},
		},
		Concurrency: []gatewayfile.Concurrency{
			{
				Name: "per-client", Match: []policy.Condition{{Entry: "route", Equals: []string{"/reports/", "POST /upload"}}},
				Per: []policy.Part{{Entry: "api_key"}, {Entry: "ip", Bits4: 24, Bits6: 64}}, Limit: 10,
			},
			{Name: "all", Limit: 5000},
		},
		Pressure: []gatewayfile.Pressure{gatewayfile.Scheduler, gatewayfile.Memory},
		Settle: []gatewayfile.Settle{
			{Rule: "traffic", Per: 1024, Estimate: 64},
			{Rule: "model-tokens", Header: "X-Model-Tokens", Keep: true, Estimate: 500},
		},
		Request:  gatewayfile.Headers{Remove: []string{"Cookie"}, Set: []gatewayfile.Header{{Name: "X-Gateway", Value: "headgate"}, {Name: "X-Tier", Entry: "tier"}}},
		Response: gatewayfile.Headers{Remove: []string{"Server", "X-Powered-By"}},
		MaxBody:  10 << 20, MaxHeader: 16 << 10, MaxDelay: 3 * time.Second, Upgrades: []string{"websocket", "mqtt"},
		Clients:     gatewayfile.Clients{Header: 5 * time.Second, Body: 20 * time.Second, MinRate: 1 << 10, Response: 15 * time.Second, Idle: time.Minute, Upgraded: time.Hour},
		Connections: gatewayfile.Connections{Total: 100_000, PerAddress: 50},
	}
	for i, f := range reflect.VisibleFields(reflect.TypeFor[gatewayfile.Settings]()) {
		g, w := reflect.ValueOf(*got).Field(i).Interface(), reflect.ValueOf(*want).Field(i).Interface()
		if !reflect.DeepEqual(g, w) {
			t.Errorf("%s is\n%+v\nwant\n%+v", f.Name, g, w)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := meets(gatewaySchema(t), data); err != nil {
		t.Errorf("the schema refuses %s:\n%v", file, err)
	}
	for name, data := range fixtures(t, "../examples/gateway/gateway*.yml") {
		if err := meets(gatewaySchema(t), data); err != nil {
			t.Errorf("the schema refuses %s:\n%v", name, err)
		}
	}
}

// Every mistake is told at once, with its place.
func TestGatewayFileWithMistakes(t *testing.T) {
	t.Parallel()
	const file = "testdata/gateway/bad.yml"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	g, err := ParseGateway("bad.yml", data)
	var mistakes *Error
	if !errors.As(err, &mistakes) || !errors.Is(err, headgate.ErrInvalid) || g != nil {
		t.Fatalf("the loader returns %v, %v", g, err)
	}
	golden(t, strings.TrimSuffix(file, ".yml")+".txt", []byte(err.Error()+"\n"))
	if err := meets(gatewaySchema(t), data); err == nil {
		t.Error("the schema accepts it")
	}
}

func TestGatewayFilesThatSayLittle(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "# nothing\n", "{}", "upgrades: []"} {
		g, err := ParseGateway("little.yml", []byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if g.Upstreams != nil || (g.Upgrades != nil) != (text == "upgrades: []") {
			t.Errorf("%q gives %+v", text, g)
		}
	}
	if _, err := ParseGateway("list.yml", []byte("- a")); err == nil || !strings.Contains(err.Error(), "list.yml:1:1: the file is a list of 1") {
		t.Errorf("a list gives %v", err)
	}
	if _, err := ReadGateway(filepath.Join(t.TempDir(), "absent.yml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there gives %v", err)
	}
	// What the gateway would not start with is found in the file, at its place.
	for text, want := range map[string]string{
		"request_headers: { remove: [X-A, Connection] }":                   "own.yml:1:34: the header Connection is the connection's own",
		"identity: { address: { trust: [10.0.0.1/8] } }":                   "own.yml:1:22: identity: trusted proxy \"10.0.0.1/8\"",
		"identity: { headers: { user: X-A }, certificate: { user: uri } }": "own.yml:1:58: identity: the entry \"user\" is taken from a header and from the certificate",
	} {
		if _, err := ParseGateway("own.yml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want %q", text, err, want)
		}
	}
	// JWT claims, say, may be written over several lines; a mistake is where it is.
	_, err := ParseGateway("two.yml", []byte("identity:\n  jwt:\n    keys: k\n    leeway: 30\n"))
	if err == nil || !strings.Contains(err.Error(), "two.yml:4:13: leeway is 30 without a unit; write 30s if seconds are meant") {
		t.Errorf("a number without a unit gives %v", err)
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"1B": 1, "512KiB": 512 << 10, "2GiB": 2 << 30, "unlimited": 0} {
		g, err := ParseGateway("size.yml", []byte("max_body: "+text))
		if err != nil || g.MaxBody != want {
			t.Errorf("%s is %+v, %v, want %d", text, g, err, want)
		}
	}
	for _, text := range []string{"0B", "1", "1MB", "-1B", "1.5MiB", "9999999999999999GiB", "999999999999999GiB", "[1B]", "true", "~"} {
		if g, err := ParseGateway("size.yml", []byte("max_body: "+text)); err == nil {
			t.Errorf("%s is %d", text, g.MaxBody)
		}
	}
}

func TestGatewaySchemaFile(t *testing.T) {
	t.Parallel()
	golden(t, "gateway.schema.json", GatewaySchema())
}

func FuzzParseGateway(f *testing.F) {
	for _, name := range []string{"everything", "bad"} {
		data, err := os.ReadFile("testdata/gateway/" + name + ".yml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := ParseGateway("fuzz.yml", data)
		if (g == nil) == (err == nil) {
			t.Errorf("%v and %v", g, err)
		}
	})
}

// TestGatewayDocs: the YAML in docs/gateway.md is what the loaders take.
func TestGatewayDocs(t *testing.T) {
	t.Parallel()
	const page = "../docs/gateway.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```yaml\n")
	for _, block := range blocks[1:] {
		block, _, _ = strings.Cut(block, "```")
		if strings.HasPrefix(block, "rules:") || strings.HasPrefix(block, "behind:") {
			_, err = Parse(page, []byte(block))
		} else {
			_, err = ParseGateway(page, []byte(block))
		}
		// A piece of a file may name proxies that stand elsewhere in it.
		if err != nil && !strings.Contains(err.Error(), "no proxy is trusted") {
			t.Errorf("%v in\n%s", err, block)
		}
	}
	// Each field is somewhere on the page, or on that of calls to language models.
	const models = "../docs/language-models.md"
	llm, err := os.ReadFile(models)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range gatewayFields(t) {
		if !strings.Contains(string(text), f) && !strings.Contains(string(llm), "`"+f) {
			t.Errorf("neither %s nor %s tells of %s", page, models, f)
		}
	}
}

// gatewayFields are the names of all fields.
func gatewayFields(t *testing.T) []string {
	t.Helper()
	var root map[string]any
	if err := json.Unmarshal(GatewaySchema(), &root); err != nil {
		t.Fatal(err)
	}
	var names []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if fields, ok := v["properties"].(map[string]any); ok {
				for name := range fields {
					names = append(names, name)
				}
			}
			for name, inner := range v {
				if name != "match" { // is that of rules
					walk(inner)
				}
			}
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		}
	}
	walk(root)
	return names
}
