package monitoring

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/contrib/kafka"
	"github.com/headgate/headgate/contrib/kafka/kafkaprom"
	"github.com/headgate/headgate/contrib/rabbitmq"
	"github.com/headgate/headgate/contrib/rabbitmq/rabbitmqprom"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/adaptive"
	"github.com/headgate/headgate/flow/shed"
	"github.com/headgate/headgate/telemetry/prom"
	"github.com/headgate/headgate/test/servers"
)

const (
	// within bounds what the test waits for on a busy machine.
	within = 2 * time.Minute
	token  = "watching-the-watchers"
)

const servicePolicy = `deny:
  - { name: scanners, match: { user: mallory } }
allow:
  - { name: staff, match: { user: root } }
rules:
  - name: login
    per: [user]
    soft: 50%
    limits: [4 per 1h]
  - name: export
    match: { user: present }
    per: all
    in_progress: { limit: 5, shared: true }
`

// envoyPolicy is a configuration of envoyproxy/ratelimit that measures by values.
const envoyPolicy = `domain: edge
descriptors:
  - key: path
    detailed_metric: true
    rate_limit: { unit: second, requests_per_unit: 1 }
`

const gatewayPolicy = `models:
  - { model: "m*", input: 1, output: 2, max_output: 9 }
rules:
  - name: pages
    match: { ip: present }
    per: [ip]
    limits: [1000 per 1s]
  - name: reports
    match: { route: GET /report, ip: present }
    per: [ip]
    in_progress: { limit: 1, wait: 5s, queue: 1 }
  - { name: budget, per: all, counts: money, algorithm: fixed_window, limits: [1000000 per calendar month] }
  - name: everywhere
    match: { route: GET /shared, ip: present }
    per: [ip]
    in_progress: { limit: 5, shared: true }
`

const gatewayFile = `upstreams:
  - { name: shop, targets: [%[1]q] }
  - { name: models, targets: [%[1]q], llm: { api: openai } }
routes:
  - { match: POST /v1/, upstream: models }
  - { match: /, upstream: shop }
concurrency:
  - { name: busy, per: all, limit: 1, match: { path: /busy } }
identity:
  jwt: { keys: keys.json, issuer: test, audience: test }
`

// TestQueries starts a service, a gateway and a program with gates and a consumer, gives them
// something to do, compares the metrics that they show with the table of all metrics, and has a real Prometheus scrape them and answer every query of every panel.
func TestQueries(t *testing.T) {
	certificates := servers.NewCertificates(t)
	redis := servers.Start(t, servers.Redis)
	binary := build(t)
	dir := t.TempDir()
	put := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if err := os.Mkdir(filepath.Join(dir, "edge"), 0o700); err != nil {
		t.Fatal(err)
	}
	put(filepath.Join("edge", "edge.yaml"), envoyPolicy)
	found := run(t, binary, `"msg":"serving","address":"([^"]+)"(?s:.*)"msg":"serving gRPC","address":"([^"]+)"`, "serve", "--envoy-config", filepath.Join(dir, "edge"),
		"--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0", "--grpc-store")
	alone := found[0]
	askEnvoy(t, found[1])
	prometheusAt := fmt.Sprintf("127.0.0.1:%d", servers.Port(t))
	service := run(t, binary, `"msg":"serving","address":"([^"]+)"`, "serve", "--config", put("service.yaml", servicePolicy), "--store", redis.URL(), "--listen", "127.0.0.1:0",
		"--region", "eu", "--regions", "eu,us", "--region-home", redis.URL(),
		"--candidate", put("candidate.yaml", strings.ReplaceAll(servicePolicy, "4 per", "1 per")), "--resp-listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0", "--history", "http://"+prometheusAt+"?job=service",
		"--tls-cert", certificates.ServerCert, "--tls-key", certificates.ServerKey)[0]
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			time.Sleep(20 * time.Millisecond)
		}
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, `data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5}}`+"\n\ndata: [DONE]\n\n")
			return
		}
		_, _ = io.WriteString(w, "here")
	}))
	t.Cleanup(upstream.Close)
	put("keys.json", keys(t))
	found = run(t, binary, `"msg":"serving","address":"([^"]+)"(?s:.*)"msg":"passing requests on","address":"([^"]+)"`, "gateway", "--config", put("limits.yaml", gatewayPolicy),
		"--gateway", put("gateway.yaml", fmt.Sprintf(gatewayFile, upstream.URL)), "--store", redis.URL(), "--admin-listen", "127.0.0.1:0", "--listen", "127.0.0.1:0")
	api, gateway := found[0], found[1]
	program := httptest.NewServer(promhttp.HandlerFor(registry(t), promhttp.HandlerOpts{}))
	t.Cleanup(program.Close)

	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	t.Cleanup(busy.Wait)
	t.Cleanup(cancel)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trusting(t, certificates.CA)}}
	t.Cleanup(client.CloseIdleConnections)
	check := func(i int) {
		user := []string{"anna", "ben", "mallory", "root", fmt.Sprint("other", i)}[i%5]
		ask(ctx, client, http.MethodPost, service+"/v1/check", `{"descriptor":{"user":"`+user+`"}}`)
	}
	acquire := func(i int) {
		ask(ctx, client, http.MethodPost, service+"/v1/permits/acquire", fmt.Sprintf(`{"rule":"export","key":"","holder":"h%d"}`, i))
	}
	page := func(path string) func(int) {
		return func(int) { ask(ctx, client, http.MethodGet, gateway+path, "") }
	}
	call := func(int) {
		ask(ctx, client, http.MethodPost, gateway+"/v1/chat/completions", `{"model":"m1","stream":true}`)
	}
	for _, do := range []func(int){check, acquire, call, page("/"), page("/report"), page("/report"), page("/report"), page("/busy"), page("/busy"), page("/shared")} {
		busy.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				do(i)
				time.Sleep(150 * time.Millisecond)
			}
		})
	}

	holdMetrics(t, client, []string{alone, service, api, program.URL})
	if *write {
		return
	}

	p := startPrometheus(t, prometheusAt, put, map[string]string{"service": service, "gateway": api, "program": program.URL}, certificates.CA)
	queries := make(map[string]string) // what each is for
	chosen := strings.NewReplacer("$job", ".*", "$instance", ".*", "$__rate_interval", "30s")
	for _, a := range Annotations() {
		queries[chosen.Replace(strings.TrimSuffix(a.Expr, " > 0"))] = "the annotation " + a.Name
	}
	for _, d := range Dashboards() {
		for _, row := range d.Rows {
			for _, panel := range row.Panels {
				for _, q := range panel.Queries {
					queries[chosen.Replace(q.Expr)] = d.UID + ": " + panel.Title
				}
			}
		}
	}
	// What alerts select has to be there, whatever its value is.
	selector := regexp.MustCompile(`headgate_\w+(\{[^}]*\})?`)
	expressions := []string{}
	for _, r := range Recordings() {
		expressions = append(expressions, r.Expr)
	}
	for _, a := range Alerts() {
		expressions = append(expressions, a.Expr)
	}
	for _, expr := range expressions {
		for _, s := range selector.FindAllString(expr, -1) {
			queries[s] = "selected by an alert"
		}
	}
	p.await(t, queries)
	remembers(t, client, service)
}

// remembers waits until a server that reads its history in Prometheus knows what it was asked.
func remembers(t *testing.T, client *http.Client, server string) {
	t.Helper()
	var answer struct {
		Past            struct{ Error, Source string }
		Total           struct{ Allowed, Denied, Listed int64 }
		Allowed, Denied int64
		Rules           []struct {
			Rule            string
			Allowed, Denied int64
		}
	}
	get := func(path string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("%s/v1/insight/%s&range=24h&until=%d", server, path, time.Now().Add(time.Minute).Unix()), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != http.StatusOK || answer.Past.Error != "" || answer.Past.Source == "" {
			t.Fatalf("status %d, %v: %+v", response.StatusCode, err, answer)
		}
	}
	for end := time.Now().Add(within); ; time.Sleep(500 * time.Millisecond) {
		get("now?limit=9")
		get("rule?rule=login")
		login := slices.IndexFunc(answer.Rules, func(r struct {
			Rule            string
			Allowed, Denied int64
		},
		) bool {
			return r.Rule == "login" && r.Denied > 0 && r.Allowed > 0
		})
		if answer.Total.Allowed > 0 && answer.Total.Denied > 0 && answer.Total.Listed > 0 && answer.Allowed > 0 && answer.Denied > 0 && login >= 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it knows %+v", answer)
		}
	}
}

// askEnvoy asks as Envoy does.
func askEnvoy(t *testing.T, address string) {
	t.Helper()
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	_, err = pb.NewRateLimitServiceClient(connection).ShouldRateLimit(ctx, &pb.RateLimitRequest{
		Domain: "edge", Descriptors: []*ratelimit.RateLimitDescriptor{{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "path", Value: "/"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// registry has gates, and a consumer, of a program of a user's.
func registry(t *testing.T) *prometheus.Registry {
	t.Helper()
	gates := prom.NewGates()
	knee, err := adaptive.NewKnee(adaptive.KneeConfig{Initial: 7})
	if err != nil {
		t.Fatal(err)
	}
	limit := adaptive.New("limit", knee)
	queue, err := shed.New(limit, shed.Config{Name: "queue"})
	if err != nil {
		t.Fatal(err)
	}
	gate := gates.Watch("db", queue, queue, limit)
	for range 9 {
		// Those beyond the limit are shed: a request with a cost that can never fit, too.
		if permit, err := gate.TryAcquire(t.Context(), flow.Request{}); err == nil {
			defer permit.Done(flow.Success)
		}
	}
	r := prometheus.NewRegistry()
	r.MustRegister(gates, kafkaprom.New(consumer{}), rabbitmqprom.New(messages{}), rabbitmqprom.NewPublisher(publisher{}))
	return r
}

// consumer is one of which only the numbers matter.
type consumer struct{}

func (consumer) Stats() kafka.Stats {
	return kafka.Stats{Partitions: []kafka.PartitionStats{{Topic: "orders", Lag: 17}}}
}

// messages is a consumer of RabbitMQ, and publisher publishes there.
type (
	messages  struct{}
	publisher struct{}
)

func (messages) Stats() rabbitmq.Stats           { return rabbitmq.Stats{} }
func (publisher) Stats() rabbitmq.PublisherStats { return rabbitmq.PublisherStats{} }

// build builds the program.
func build(t *testing.T) string {
	t.Helper()
	binary, err := servers.Headgate()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// run starts a program, and returns what the pattern finds in its log once that is there.
func run(t *testing.T, name, pattern string, args ...string) []string {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "HEADGATE_ADMIN_TOKEN="+token, "HEADGATE_LOG_FORMAT=json")
	cmd.Stdout, cmd.Stderr = log, log
	servers.Bind(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s, which scripts/install-test-programs installs: %v", name, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	over := false
	says := regexp.MustCompile(pattern)
	for end := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(log.Name())
		if found := says.FindStringSubmatch(string(text)); found != nil {
			return found[1:]
		}
		if err != nil || over || time.Now().After(end) {
			t.Fatalf("%s does not serve: %v\n%s", name, err, text)
		}
		select {
		case <-ended:
			over = true // The log may say more than was read.
		default:
		}
	}
}

// ask sends a request whose answer does not matter.
func ask(ctx context.Context, client *http.Client, method, address, body string) {
	request, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		panic(err) // Only a wrong address makes it fail.
	}
	request.Header.Set("Content-Type", "application/json")
	if response, err := client.Do(request); err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
}

func trusting(t *testing.T, ca string) *tls.Config {
	t.Helper()
	text, err := os.ReadFile(ca)
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(text) {
		t.Fatalf("%s: %v", ca, err)
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

// keys is a set of a key that tokens might be signed with.
func keys(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	point, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	x, y := base64.RawURLEncoding.EncodeToString(point[1:33]), base64.RawURLEncoding.EncodeToString(point[33:])
	return fmt.Sprintf(`{"keys":[{"kty":"EC","crv":"P-256","alg":"ES256","use":"sig","kid":"one","x":%q,"y":%q}]}`, x, y)
}

// monitor is a Prometheus.
type monitor struct{ base string }

// startPrometheus starts one at the address, which scrapes the addresses, by the names of their jobs.
func startPrometheus(t *testing.T, address string, put func(name, content string) string, jobs map[string]string, ca string) *monitor {
	t.Helper()
	rules, err := filepath.Abs(filepath.Join(deployed, "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "global: { scrape_interval: 1s }\nrule_files: [%q]\nscrape_configs:\n", rules)
	for job, address := range jobs {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "  - job_name: %s\n    scheme: %s\n    tls_config: { ca_file: %q }\n    static_configs: [{ targets: [%q] }]\n", job, u.Scheme, ca, u.Host)
	}
	config := put("prometheus.yaml", b.String())
	run(t, "prometheus", "Server is ready to receive web requests", "--config.file="+config, "--storage.tsdb.path="+t.TempDir(), "--web.listen-address="+address)
	return &monitor{"http://" + address}
}

// await waits until each of the queries has a value.
func (m *monitor) await(t *testing.T, queries map[string]string) {
	t.Helper()
	for end := time.Now().Add(within); len(queries) > 0; time.Sleep(500 * time.Millisecond) {
		for expr, what := range queries {
			n, err := m.query(t.Context(), expr)
			if err != nil || n == 0 && time.Now().After(end) {
				t.Errorf("%s: %s has no value: %v", what, expr, err)
			}
			if err != nil || n > 0 || time.Now().After(end) {
				delete(queries, expr)
			}
		}
	}
}

// query is how many values an expression has that are numbers.
func (m *monitor) query(ctx context.Context, expr string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.base+"/api/v1/query?query="+url.QueryEscape(expr), http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct{ Result []struct{ Value [2]any } }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return 0, err
	}
	if answer.Status != "success" {
		return 0, fmt.Errorf("%s", answer.Error)
	}
	values := slices.DeleteFunc(answer.Data.Result, func(r struct{ Value [2]any }) bool { return r.Value[1] == "NaN" })
	return len(values), nil
}
