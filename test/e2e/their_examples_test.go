package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate/headgate/test/servers"
)

// TestTheirConfigurations takes the configurations in the examples and the tests of
// envoyproxy/ratelimit. Those that are valid decide the same here as there; those that are not are
// refused.
func TestTheirConfigurations(t *testing.T) {
	t.Parallel()
	source, dir := sourceOfOriginal(t), t.TempDir()
	program := buildOriginal(t)
	awayFromMidnight(t)
	for _, name := range []string{
		"bad_limit_unit", "bad_yaml", "duplicate_key", "empty_domain", "empty_key", "misspelled_key", "misspelled_key2", "non_map_list",
		"non_string_key", "replaces_empty", "replaces_self", "unlimited_with_unit",
	} {
		config := filepath.Join(dir, name)
		copyConfiguration(t, config, filepath.Join(source, "test", "config", name+".yaml"))
		if got := runProgram(t, "convert", "envoy", config); got.code != 2 {
			t.Errorf("%s: the exit code is %d\n%s", name, got.code, got.stderr)
		}
	}
	redis := servers.Start(t, servers.Redis)
	for i, files := range [][]string{
		{"examples/ratelimit/config/example.yaml", "examples/ratelimit/config/config.yaml"},
		{"test/config/basic_config.yaml"},
		{"test/config/shadowmode_config.yaml"},
		{"test/config/share_threshold.yaml"},
		{"test/config/wildcard.yaml"},
		{"test/config/merge_domain_key1.yaml", "test/config/merge_domain_key2.yaml"},
	} {
		root := filepath.Join(dir, fmt.Sprint(i))
		config := filepath.Join(root, "ratelimit", "config")
		var text string
		for _, file := range files {
			text += copyConfiguration(t, config, filepath.Join(source, filepath.FromSlash(file)))
		}
		s := serve(t, "--grpc-listen", "127.0.0.1:0", "--envoy-config", config, "--envoy-independent")
		ours := rateLimiter(t, grpcAddress(t, s))
		theirs := rateLimiter(t, startOriginal(t, program, root, redis.Addr(), "MERGE_DOMAIN_CONFIG=true", "CACHE_KEY_PREFIX="+fmt.Sprint(i)))
		requests := requestsFor(rand.New(rand.NewPCG(uint64(i), 7)), text)
		if len(requests) < 40 {
			t.Errorf("%s: only %d requests", files, len(requests))
		}
		for n, request := range requests {
			if want, got := told(t, theirs, request), told(t, ours, request); got != want {
				t.Errorf("%s, request %d, %v\nHeadgate says %s\nthe original  %s", files, n+1, request, got, want)
				break
			}
		}
	}
}

// copyConfiguration copies a file into a directory, with windows of a day, and returns its text.
func copyConfiguration(t *testing.T, dir, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`unit: (second|minute|hour)\b`).ReplaceAll(text, []byte("unit: day"))
	if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	domainLine = regexp.MustCompile(`(?m)^domain: "?([^"\s]+)`)
	keyLine    = regexp.MustCompile(`^( *)- key: "?([^"\s]+)`)
	valueLine  = regexp.MustCompile(`^( *)value: "?([^"\s]+)`)
)

// requestsFor makes requests of which most lead to the limits of a configuration: each descriptor
// that it has, some of them more often than they are admitted, alone and in pairs.
func requestsFor(r *rand.Rand, text string) (requests []*pb.RateLimitRequest) {
	for _, part := range regexp.MustCompile(`(?m)^domain: `).Split(text, -1)[1:] {
		domain := domainLine.FindStringSubmatch("domain: " + part)[1]
		all := descriptorsOf(part)
		for range max(40, 6*len(all)) {
			request := &pb.RateLimitRequest{Domain: domain, HitsAddend: uint32(r.IntN(4))}
			first, second := r.IntN(len(all)), r.IntN(len(all))
			request.Descriptors = append(request.Descriptors, filled(r, all[first]))
			if first != second && r.IntN(2) == 0 {
				request.Descriptors = append(request.Descriptors, filled(r, all[second]))
			}
			requests = append(requests, request)
		}
	}
	return requests
}

// level is a descriptor of a configuration, at its indentation.
type level struct {
	indent     int
	key, value string
}

// descriptorsOf are the ways to the descriptors of a configuration.
func descriptorsOf(text string) (all [][]level) {
	var way []level
	add := func() {
		if len(way) > 0 {
			all = append(all, append([]level(nil), way...))
		}
	}
	for line := range strings.Lines(text) {
		if found := keyLine.FindStringSubmatch(line); found != nil {
			add()
			for len(way) > 0 && way[len(way)-1].indent >= len(found[1]) {
				way = way[:len(way)-1]
			}
			way = append(way, level{len(found[1]), found[2], ""})
		} else if found := valueLine.FindStringSubmatch(line); found != nil && len(way) > 0 && way[len(way)-1].indent+2 == len(found[1]) {
			way[len(way)-1].value = found[2]
		}
	}
	add()
	return all
}

// filled is a descriptor of a request that leads there: what the configuration leaves open is
// chosen. Stars that are not at the end are taken literally, which versions of the original before
// March 2026 did with them.
func filled(r *rand.Rand, way []level) *ratelimit.RateLimitDescriptor {
	d := new(ratelimit.RateLimitDescriptor)
	for _, l := range way {
		value := l.value
		if before, ok := strings.CutSuffix(value, "*"); ok || value == "" {
			value = before + oneOf(r, "one", "two")
		}
		d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: l.key, Value: value})
	}
	return d
}
