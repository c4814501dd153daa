package e2e

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/test/servers"
)

// theirSeries are the metrics of envoyproxy/ratelimit at the address, without how long calls took and
// what was not used. A label that is empty is none.
func theirSeries(t *testing.T, address string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, m := range regexp.MustCompile(`(?m)^(ratelimit_service_\S+) (\S+)$`).FindAllStringSubmatch((&server{base: "http://" + address}).get(t, "/metrics").text, -1) {
		name := strings.NewReplacer(`,key2=""`, "").Replace(m[1])
		if m[2] != "0" && !strings.Contains(name, "response_time_seconds_bucket") && !strings.Contains(name, "response_time_seconds_sum") {
			all[name] = m[2]
		}
	}
	return all
}

// TestMetricsOfEnvoyproxyRatelimit: dashboards for envoyproxy/ratelimit find the same series, with the
// same values after the same requests.
func TestMetricsOfEnvoyproxyRatelimit(t *testing.T) {
	t.Parallel()
	program := buildOriginal(t)
	awayFromMidnight(t)
	redis := servers.Start(t, servers.Redis)
	root := t.TempDir()
	config := filepath.Join(root, "ratelimit", "config")
	if err := os.MkdirAll(config, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(config, "d.yaml"), []byte(`
domain: shop/http
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: free, rate_limit: {unlimited: true}}
  - key: ip
    value: 10.0.0.1
    descriptors:
      - {key: path, rate_limit: {unit: day, requests_per_unit: 2}, descriptors: [{key: deep, rate_limit: {unit: day, requests_per_unit: 1}}]}
      - {key: seen, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 2}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	ports := freePorts(t, 4)
	metrics := net.JoinHostPort("127.0.0.1", ports[0])
	theirs := rateLimiter(t, startOriginal(t, program, root, redis.Addr(), "DISABLE_STATS=false", "STATS_FLUSH_INTERVAL=100ms", "USE_PROMETHEUS=true", "PROMETHEUS_ADDR="+metrics))
	cmd := command(t, binary, "ratelimit")
	mine := net.JoinHostPort("127.0.0.1", ports[1])
	cmd.Env = append(os.Environ(), "HOST=127.0.0.1", "PORT="+ports[2], "GRPC_HOST=127.0.0.1", "GRPC_PORT="+ports[3], "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.Addr(), "REDIS_TIMEOUT="+patience,
		"RUNTIME_ROOT="+root, "RUNTIME_SUBDIRECTORY=ratelimit", "USE_STATSD=false", "USE_PROMETHEUS=true", "PROMETHEUS_ADDR="+mine)
	runBeside(t, cmd)
	ours := rateLimiter(t, net.JoinHostPort("127.0.0.1", ports[3]))
	requests := 0
	for _, entries := range [][]string{{"user", "a"}, {"shadow", "a"}, {"free", "a"}, {"none", "a"}, {"ip", "10.0.0.1", "path", "/"}, {"ip", "10.0.0.1", "path", "/", "deep", "x"}, {"ip", "10.0.0.1", "seen", "y"}} {
		for range 7 {
			request := requestOf("shop/http", entries[0], entries[1])
			for i := 2; i < len(entries); i += 2 {
				more := requestOf("", entries[i], entries[i+1])
				request.Descriptors[0].Entries = append(request.Descriptors[0].Entries, more.GetDescriptors()[0].GetEntries()...)
			}
			told(t, theirs, request)
			told(t, ours, request)
			requests++
		}
	}
	var want, got map[string]string
	defer func() {
		if t.Failed() {
			t.Logf("there are %v\nhere are %v", want, got)
		}
	}()
	until(t, "both tell of all requests", func() bool {
		want, got = theirSeries(t, metrics), theirSeries(t, mine)
		return maps.Equal(want, got)
	})
	if len(got) < 15 || requests != 49 {
		t.Errorf("after %d requests there are only %v", requests, got)
	}
}
