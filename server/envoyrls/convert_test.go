package envoyrls

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate/headgate/config"
)

// convertible is a configuration that is compared with what it is converted to, and
// what requests of it are made of.
type convertible struct {
	text, domain string
	keys, values []string
}

// features are configurations with what envoyproxy/ratelimit's own examples have,
// each with requests that meet it.
func features() []convertible {
	return []convertible{
		{ // replaces, zero and unlimited limits, shadow and quota mode
			domain: "rl", keys: []string{"category", "source", "destination", "foo", "bar", "baz"},
			values: []string{"account", "proxy", "search", "override", "mock", "other", "banned", "shady", "free"},
			text: `
domain: rl
descriptors:
  - {key: category, value: account, rate_limit: {replaces: [{name: per_search}, {name: of_nobody}], unit: minute, requests_per_unit: 4}}
  - {key: category, value: free, rate_limit: {replaces: [{name: banned}, {name: per_search}], unlimited: true}}
  - {key: category, value: banned, rate_limit: {name: banned, replaces: [{name: per_foo}], unit: day, requests_per_unit: 0}}
  - key: source
    value: proxy
    descriptors:
      - {key: destination, value: search, rate_limit: {name: per_search, unit: minute, requests_per_unit: 2}}
      - {key: destination, value: mock, rate_limit: {unit: minute, requests_per_unit: 1}}
      - {key: destination, value: override, rate_limit: {replaces: [{name: banned}], unit: minute, requests_per_unit: 2}}
  - key: foo
    rate_limit: {name: per_foo, unit: minute, requests_per_unit: 2}
    descriptors:
      - {key: bar, rate_limit: {unit: minute, requests_per_unit: 3}}
      - {key: bar, value: banned, rate_limit: {name: banned, unit: minute, requests_per_unit: 0}}
      - {key: baz, rate_limit: {unit: second, requests_per_unit: 1}}
      - {key: baz, value: shady, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 3}}
      - {key: baz, value: other, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
      - {key: baz, value: mock, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
`,
		},
		{ // stars, shared or not, and what is nested below them
			domain: "wild", keys: []string{"path", "wild", "nested"},
			values: []string{"foo", "foo1", "foo22", "files/a", "files/b", "files/private/a", "val1", "val2"},
			text: `
domain: wild
descriptors:
  - {key: wild, value: foo*, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: wild, value: foo, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: path, value: files/private/*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: path, value: files/*, rate_limit: {unit: hour, requests_per_unit: 4}}
  - key: nested
    value: val*
    descriptors:
      - {key: wild, value: foo*, rate_limit: {unit: second, unit_multiplier: 30, requests_per_unit: 2}}
      - {key: wild, rate_limit: {unlimited: true}}
`,
		},
	}
}

// randomConfig is a list of descriptors at random, with all that rules can say.
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
		mode := pick("", "", "", "shadow_mode", "quota_mode", "quota_mode")
		if mode != "" {
			fmt.Fprintf(&b, "%s  %s: true\n", indent, mode)
		}
		name, other := pick("n0", "n1", "n2", "n3"), pick("n1", "n2", "n3")
		rest := ", name: " + name
		if other != name && r.IntN(3) == 0 {
			rest += fmt.Sprintf(", replaces: [{name: %s}]", other)
		}
		switch r.IntN(8) {
		case 0:
		case 1:
			fmt.Fprintf(&b, "%s  rate_limit: {unlimited: true%s}\n", indent, rest)
		default:
			least := 0
			if mode == "quota_mode" {
				least = 1 // What becomes of zero is told, and tested by itself.
			}
			fmt.Fprintf(&b, "%s  rate_limit: {unit: day, requests_per_unit: %d%s}\n", indent, least+r.IntN(6-least), rest)
		}
		if depth > 0 && r.IntN(2) == 0 {
			fmt.Fprintf(&b, "%s  descriptors:\n%s", indent, randomConfig(r, indent+"    ", depth-1))
		}
	}
	return b.String()
}

// ask is a request at random of which no two descriptors are the same.
func (c *convertible) ask(r *rand.Rand) *pb.RateLimitRequest {
	pick := func(choices []string) string { return choices[r.IntN(len(choices))] }
	asked := &pb.RateLimitRequest{Domain: pick([]string{c.domain, c.domain, c.domain, "other"}), HitsAddend: uint32(r.IntN(3))}
	taken := make(map[string]bool)
	for range 1 + r.IntN(4) {
		var entries []string
		for range 1 + r.IntN(1+r.IntN(3)) {
			entries = append(entries, pick(c.keys)+"="+pick(c.values))
		}
		if id := fmt.Sprint(entries); !taken[id] {
			taken[id] = true
			one := d(entries...)
			switch r.IntN(9) {
			case 0:
				one = hits(uint64(r.IntN(3)), one)
			case 1:
				one = back(1, one)
			}
			asked.Descriptors = append(asked.Descriptors, one)
		}
	}
	return asked
}

// decided is what was decided: the overall code, code and remaining of each
// descriptor, and those that are beyond a quota.
func decided(answer *pb.RateLimitResponse) string {
	var b strings.Builder
	b.WriteString(answer.GetOverallCode().String())
	for _, status := range answer.GetStatuses() {
		fmt.Fprintf(&b, " %s:%d", status.GetCode(), status.GetLimitRemaining())
	}
	if list := answer.GetDynamicMetadata().GetFields()["quotaModeViolations"]; list != nil {
		fmt.Fprintf(&b, " beyond %v", list.AsInterface())
	}
	return b.String()
}

// withoutZero is a decision without what is told of limits of zero that deny nobody:
// the one thing that rules say otherwise.
func withoutZero(decision string) string {
	decision, _, _ = strings.Cut(decision, " beyond")
	return strings.ReplaceAll(decision, ":4294967295", ":0")
}

// TestConvertedDecidesTheSame holds what converted configurations decide against
// what they decide as they are, for requests at random: codes, what remains, and
// which descriptors are beyond a quota, with all charged together and each by
// itself. The configurations are those with the features, in both ways, and others at random, in
// one or the other.
func TestConvertedDecidesTheSame(t *testing.T) {
	all := features()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 6))
		all = append(all, convertible{
			domain: "d", keys: []string{"a", "b", "c"}, values: []string{"x", "xy", "xyz", "y", "z"},
			text: "domain: d\ndescriptors:\n" + randomConfig(r, "  ", 2),
		})
	}
	count := make(map[string]int)
	for i := range all {
		c := &all[i]
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "d.yaml"), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		converted, lost, err := config.ConvertEnvoy(dir)
		if err != nil {
			t.Fatal(err)
		}
		zeroIsLost := false
		for _, m := range lost {
			zero := strings.Contains(m.Text, "a limit of zero in")
			zeroIsLost = zeroIsLost || zero
			if !zero && !strings.Contains(m.Text, "no descriptor arrives here") {
				t.Fatalf("configuration %d: %v", i, m)
			}
		}
		for _, feature := range []string{"replaces:", "mode: quota", "mode: shadow", "deny:", "allow:"} {
			count[feature] += strings.Count(string(converted), feature)
		}
		ways := []Options{{}, {Independent: true}}
		if i >= len(features()) {
			ways = ways[i%2 : i%2+1]
		}
		for _, options := range ways {
			r := rand.New(rand.NewPCG(uint64(i), 7))
			asItIs, asRules := newStage(t, envoyPolicy(t, c.text), options), newStage(t, ownPolicy(t, string(converted)), options)
			for n := range 100 {
				asked := c.ask(r)
				want, got := decided(asItIs.must(t, asked)), decided(asRules.must(t, asked))
				if zeroIsLost {
					want, got = withoutZero(want), withoutZero(got)
				}
				if got != want {
					t.Fatalf("configuration %d, %+v, request %d, %v\nas rules %s\nas it is %s\n%s\n%s", i, options, n+1, asked, got, want, c.text, converted)
				}
				word, _, _ := strings.Cut(got, " ")
				count[word]++
				count["beyond"] += strings.Count(got, "beyond")
				if step := time.Duration(r.IntN(4)) * 10 * time.Second; n%8 == 7 {
					asItIs.pass(step)
					asRules.pass(step)
				}
			}
		}
	}
	for _, what := range []string{"OVER_LIMIT", "OK", "replaces:", "mode: quota", "mode: shadow", "deny:", "allow:", "beyond"} {
		if count[what] < 10 {
			t.Errorf("%s came up only %d times: %v", what, count[what], count)
		}
	}
}
