package document

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/headgate/headgate/config"
)

const policyText = `
deny: [{ name: mallory, match: { user: deny-secret } }]
rules:
  - name: search
    match: { route: [GET /search, "GET /v1/*"], api_key: present }
    per: [api_key]
    algorithm: sliding_window
    limits: [5 per 3s, 20 per 1m]
    overrides: [{ match: { api_key: override-secret }, limits: [900 per 1m] }]
    give_back_on: [304, 5xx]
  - name: tariff
    per: [user]
    limits: { tier: { pro: [50 per 1s burst 200, 1000 per calendar month], "*": [1 per 15m] } }
  - name: anonymous
    match: { api_key: absent }
    per: [ip/24/64]
    algorithm: fixed_window
    limits: [100 per 1h]
  - { name: trial-secret, per: [user], limits: [1 per 1s], mode: shadow }
  - { name: part-secret, per: [user], limits: [1 per 1s], enforce: 5% }
  - { name: capacity-secret, per: all, limits: [77777 per 1s] }
  - { name: inside-secret, match: { ip: 10.0.0.0/8 }, per: [user], limits: [1 per 1s] }
  - { name: plan-secret, match: { plan: vip }, per: [user], limits: [1 per 1s] }
  - { name: keys-secret, per: [user], limits: { api_key: { k-secret: [9 per 1s], "*": [8 per 1s] } } }
limits:
  - { name: direct-secret, config: [{ limit: 3, period: 9 }] }
`

func document(t *testing.T, text string, dialect string) *Document {
	t.Helper()
	set, err := config.Parse("policy.yml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(set, Options{Title: "Limits <of> us", Dialect: dialect})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDocument: each format says what clients may do, and nothing that is not theirs to know.
func TestDocument(t *testing.T) {
	d := document(t, policyText, "x-ratelimit")
	html, err := d.HTML()
	if err != nil {
		t.Fatal(err)
	}
	openAPI, err := d.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	for format, text := range map[string]string{"Markdown": strings.ReplaceAll(d.Markdown(), `\*`, "*"), "HTML": html, "OpenAPI": openAPI} {
		for _, want := range []string{
			"GET /search; GET /v1/*", "API key", "20 a minute, at most 5 within 3 seconds",
			"1000 per calendar month (UTC), at most 50 a second on average, up to 200 at once", "1 every 15 minutes on average, up to 1 at once", "all others",
			"without an API key", "IP address (IPv4 networks of /24 and IPv6 networks of /64 count as one)", "100 an hour",
			"Requests that are answered with 304 or 5xx do not count.", "Retry-After", "X-RateLimit-Remaining", "retry_after_ms", "quota-exceeded",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q:\n%s", format, want, text)
			}
		}
		for _, private := range []string{"secret", "77777", "900", "mallory", "10.0.0.0", "vip"} {
			if strings.Contains(text, private) {
				t.Errorf("%s has %q:\n%s", format, private, text)
			}
		}
	}
	if strings.Contains(html, "<of>") || strings.Contains(d.Markdown(), "<of>") {
		t.Error("the title is markup")
	}
	var fragment struct {
		Components struct {
			Responses map[string]struct{ Headers map[string]any }
		}
	}
	if err := json.Unmarshal([]byte(openAPI), &fragment); err != nil || len(fragment.Components.Responses["TooManyRequests"].Headers) != 4 {
		t.Errorf("the OpenAPI fragment: %+v, %v", fragment, err)
	}
	left := make(map[string]bool)
	for _, l := range d.LeftOut {
		left[l.Rule] = l.Why != ""
	}
	for _, name := range []string{"trial-secret", "part-secret", "capacity-secret", "inside-secret", "plan-secret", "keys-secret", "direct-secret"} {
		if !left[name] {
			t.Errorf("nobody is told that %s was left out", name)
		}
	}
}

// TestDialects: the headers are those that the doors write.
func TestDialects(t *testing.T) {
	for dialect, want := range map[string]string{
		"x-ratelimit": "X-RateLimit-Limit", "ratelimit-triple": "RateLimit-Limit", "draft-11": "RateLimit-Policy",
	} {
		if text := document(t, policyText, dialect).Markdown(); !strings.Contains(text, "| `"+want+"` |") {
			t.Errorf("%s: no %s in\n%s", dialect, want, text)
		}
	}
	if d := document(t, policyText, "none"); len(d.Headers) != 1 {
		t.Errorf("without headers there are %v, want Retry-After alone", d.Headers)
	}
	if _, err := New(nil, Options{Dialect: "x"}); err == nil {
		t.Error("a dialect that there is not is taken")
	}
}
