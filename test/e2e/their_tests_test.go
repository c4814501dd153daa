package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// originalSource names, in the environment, a checkout of envoyproxy/ratelimit that is taken in
// place of the version that the module proxy has.
const originalSource = "HEADGATE_TEST_ENVOYPROXY_RATELIMIT_SOURCE"

// sourceOfOriginal is the directory with the source of envoyproxy/ratelimit.
func sourceOfOriginal(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv(originalSource); dir != "" {
		return dir
	}
	get := command(t, "go", "mod", "download", "-json", strings.Replace(original, "/src/service_cmd@", "@", 1))
	get.Env = append(os.Environ(), "GOWORK=off")
	get.Dir = t.TempDir() // outside of any module
	text, err := get.Output()
	if err != nil {
		t.Fatalf("go mod download: %v\n%s", err, text)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(text, &module); err != nil {
		t.Fatal(err)
	}
	return module.Dir
}

// edited is a file of their tests, and what is replaced in it.
type edited struct {
	file     string
	replaced []replacement
}

type replacement struct{ pattern, by string }

// longer makes windows a day, so that none ends while a test counts in it.
var longer = []replacement{
	{`unit: (minute|hour)`, "unit: day"},
	{`(RateLimitResponse_RateLimit_|RateLimitUnit_)(MINUTE|HOUR)`, "${1}DAY"},
}

// patient has their tests wait for as long as a busy machine needs.
var patient = []replacement{{`\b(1|10)\*time\.Second\)`, "120*time.Second)"}}

// edits are what is changed in their tests: windows, patience, ports, and what they say of numbers
// that Headgate does not have. (There are statistics of each limit; Headgate has metrics of its
// own.) Headgate also sends metadata and the headers of a denial without being asked.
func edits(t *testing.T) []edited {
	t.Helper()
	var ports []replacement
	used := []string{"6380", "6383", "6384", "6385", "6394", "8082", "8083", "8084", "18000"}
	for i, port := range freePorts(t, len(used)) {
		ports = append(ports, replacement{`\b` + used[i] + `\b`, port})
	}
	uncounted := replacement{`assert\.Equal\([^\n]*int\((\w+Counter)\.Value\(\)\)\)`, "_ = $1"}
	same := replacement{`(?s)(func AssertProtoEqual\([^\n]*\n)`, "$1\tif r, ok := actual.(*pb.RateLimitResponse); ok {\n\t\tr.DynamicMetadata, r.ResponseHeadersToAdd = nil, nil\n\t}\n"}
	tests := append(append([]replacement{uncounted}, longer...), append(patient, ports...)...)
	return []edited{
		{"test/integration/integration_test.go", tests},
		{"test/integration/xds_sotw_integration_test.go", tests},
		{"test/common/common.go", append([]replacement{same}, patient...)},
		{"test/common/xds_sotw.go", patient},
		{"test/integration/runtime/current/ratelimit/config/basic.yaml", longer},
		{"test/integration/runtime/current/ratelimit/config/another.yaml", longer},
		{"test/integration/runtime/current/ratelimit/config/share_threshold.yaml", longer},
	}
}

// TestTheirIntegrationTests has the integration tests of envoyproxy/ratelimit ask Headgate, which
// is started as headgate ratelimit with the settings of each test. (Until July 2026 they did not
// change after the version that the module proxy has.) Their tests of TLS to Redis, of
// Sentinels and of clusters need servers that their Makefile starts; test/topologies has such.
func TestTheirIntegrationTests(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "ratelimit")
	if err := os.CopyFS(dir, os.DirFS(sourceOfOriginal(t))); err != nil {
		t.Fatal(err)
	}
	runner, err := os.ReadFile(filepath.Join("testdata", "ratelimit", "runner.go"))
	if err != nil {
		t.Fatal(err)
	}
	rewrite(t, filepath.Join(dir, "src", "service_cmd", "runner", "runner.go"), func(string) string { return string(runner) })
	for _, e := range edits(t) {
		rewrite(t, filepath.Join(dir, e.file), func(text string) string {
			for _, r := range e.replaced {
				text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.by)
			}
			return text
		})
	}
	program := filepath.Join(dir, "integration.test")
	build := command(t, "go", "test", "-c", "-tags", "integration", "-o", program, "./test/integration")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false -mod=mod -ldflags=-w")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	ourselves, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	awayFromMidnight(t)
	// Each of the settings that their tests vary, once.
	for _, run := range []string{
		"^TestBasicConfig$/^(WithoutPerSecondRedis|WithPerSecondRedisWithLocalCache|WithoutPerSecondRedisWithCachePrefix)$",
		"^TestBasicConfig$/^WithoutPerSecondRedisWithstopCacheKeyIncrementWhenOverlimitConfig$",
		"^TestBasicAuthConfig$/^WithoutPerSecondRedisAuth$",
		"^TestBasicConfigMemcache$/^(Memcache|MemcacheWithPrefix)$",
		"^TestBasicReloadConfig$",
		"^TestXdsProviderBasicConfig$/^WithoutPerSecondRedis$",
		"^TestXdsProviderBasicConfigReload$",
		"^TestShareThreshold$",
		"^TestReloadGRPCServerCerts$",
	} {
		cmd := command(t, program, "-test.v", "-test.run", run)
		cmd.Dir = filepath.Join(dir, "test", "integration")
		cmd.Env = append(os.Environ(), "HEADGATE_PROGRAM="+ourselves)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: ") {
			t.Errorf("%s: %v\n%s", run, err, out)
		}
	}
}

// rewrite changes a file.
func rewrite(t *testing.T, file string, change func(text string) string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(change(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
}
