package envoyrls

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate/headgate/config"
)

// randomConfig is a configuration that rules can say all of: what they cannot,
// config.ConvertEnvoy tells.
func randomConfig(r *rand.Rand, indent string, depth int) string {
	pick := func(choices ...string) string { return choices[r.IntN(len(choices))] }
	var b strings.Builder
	taken := make(map[string]bool)
	for range 2 + r.IntN(4) {
		key, value := pick("a", "b", "c"), pick("", "x", "xy", "y", "x*", "*")
		if taken[key+value] {
			continue
		}
		taken[key+value] = true
		fmt.Fprintf(&b, "%s- key: %s\n", indent, key)
		if value != "" {
			fmt.Fprintf(&b, "%s  value: %q\n", indent, value)
		}
		if r.IntN(6) == 0 {
			fmt.Fprintf(&b, "%s  shadow_mode: true\n", indent)
		}
		switch r.IntN(8) {
		case 0:
		case 1:
			fmt.Fprintf(&b, "%s  rate_limit: {unlimited: true}\n", indent)
		default:
			name, other := pick("n0", "n1", "n2", "n3"), pick("n1", "n2", "n3")
			replaces := ""
			if other != name && r.IntN(3) == 0 {
				replaces = fmt.Sprintf(", replaces: [{name: %s}]", other)
			}
			fmt.Fprintf(&b, "%s  rate_limit: {unit: day, requests_per_unit: %d, name: %s%s}\n", indent, 1+r.IntN(9), name, replaces)
		}
		if depth > 0 && r.IntN(2) == 0 {
			fmt.Fprintf(&b, "%s  descriptors:\n%s", indent, randomConfig(r, indent+"    ", depth-1))
		}
	}
	return b.String()
}

// randomAsk is a request of which no two descriptors are the same.
func randomAsk(r *rand.Rand) *pb.RateLimitRequest {
	asked := &pb.RateLimitRequest{Domain: []string{"d", "d", "d", "e"}[r.IntN(4)], HitsAddend: uint32(r.IntN(3))}
	taken := make(map[string]bool)
	for range 1 + r.IntN(4) {
		var entries []string
		for range 1 + r.IntN(3) {
			entries = append(entries, []string{"a", "b", "c"}[r.IntN(3)]+"="+[]string{"x", "xy", "xyz", "y", "z"}[r.IntN(5)])
		}
		if id := fmt.Sprint(entries); !taken[id] {
			taken[id] = true
			one := d(entries...)
			if r.IntN(6) == 0 {
				one = hits(uint64(r.IntN(3)), one)
			}
			asked.Descriptors = append(asked.Descriptors, one)
		}
	}
	return asked
}

// TestConvertedAnswersTheSame makes configurations and requests at random, and
// holds what the converted configuration answers against what it answers as it is.
func TestConvertedAnswersTheSame(t *testing.T) {
	denied, replacing := 0, 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 6))
		text := "domain: d\ndescriptors:\n" + randomConfig(r, "  ", 2)
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "d.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		converted, lost, err := config.ConvertEnvoy(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range lost {
			if !strings.Contains(m.Text, "no descriptor arrives here") && !strings.Contains(m.Text, "since it admits everything or nothing") {
				t.Fatalf("seed %d: %v", seed, m)
			}
		}
		replacing += strings.Count(string(converted), "replaces:")
		options := Options{Independent: seed%2 == 0}
		asItIs, asRules := newStage(t, envoyPolicy(t, text), options), newStage(t, ownPolicy(t, string(converted)), options)
		for i := range 100 {
			asked := randomAsk(r)
			want, got := line(asItIs.must(t, asked)), line(asRules.must(t, asked))
			if got != want {
				t.Fatalf("seed %d, request %d, %v\nas rules %s\nas it is %s\n%s\n%s", seed, i+1, asked, got, want, text, converted)
			}
			if strings.HasPrefix(got, "OVER") {
				denied++
			}
		}
	}
	if denied < 40 || replacing < 20 {
		t.Errorf("%d requests were denied, and %d rules replace others", denied, replacing)
	}
}
