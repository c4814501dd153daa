package report_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/tune/load"
	"github.com/headgate/headgate/tune/report"
)

// loaded is a report in which everything has a text of a stranger's.
func loaded(t *testing.T) *load.Report {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "1") {
			w.Header().Set("Retry-After", "1")
			w.Header().Set("RateLimit", `"<b>";r=3;t=1`)
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer s.Close()
	var targets []*load.Target
	for _, path := range []string{"/0", "/1", "/<script>alert(1)</script>"} {
		one, err := load.NewTarget(load.Request{URL: s.URL + path})
		if err != nil {
			t.Fatal(err)
		}
		one.Name = path
		targets = append(targets, one)
	}
	c, err := load.New(t.Context(), load.Options{Targets: targets, Timeout: time.Minute, MaxLag: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var all []*load.Measurement
	for _, rate := range []float64{100, 200} {
		m, err := c.Run(t.Context(), load.Shape{Rate: rate, For: time.Second}, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	r := &load.Report{
		Measurement: all[1], Target: hostile[0], NotMet: hostile,
		Found: &load.Found{Sustainable: 100, Refused: 200, Because: hostile, Steps: all},
		Audit: &load.Audit{Findings: []load.Finding{{About: "reset", Outcome: load.Wrong, Text: hostile[1]}}, Dialect: []string{"Retry-After", "X-RateLimit-*"}},
	}
	for _, text := range hostile {
		r.Measurement.Status[text]++
		r.Measurement.ByClass[text] = load.Percentiles{}
	}
	return r
}

// TestServedRow: the table of latencies has no row of what was served if nothing was, and says so
// where timeouts count with it.
func TestServedRow(t *testing.T) {
	t.Parallel()
	fast, slow := load.Percentiles{P50: 1, Max: 2}, load.Percentiles{P50: 500, Max: 500}
	for _, tt := range []struct {
		name      string
		errors    float64
		latency   load.Percentiles
		classes   map[string]load.Percentiles
		want, not string
	}{
		{"all served", 0, fast, map[string]load.Percentiles{"2xx": fast}, "served  ", "2xx"},
		{"some timed out", 0.5, slow, map[string]load.Percentiles{"2xx": fast, "timeout": slow}, "served or timeout  ", "served  "},
		{"all timed out", 1, slow, map[string]load.Percentiles{"timeout": slow}, "timeout  ", "served"},
		{"all refused", 1, load.Percentiles{}, map[string]load.Percentiles{"429": fast}, "429  ", "served"},
	} {
		m := &load.Measurement{ErrorShare: tt.errors, Latency: tt.latency, ByClass: tt.classes, Valid: true}
		var text strings.Builder
		if err := report.LoadText(&text, &load.Report{Measurement: m}); err != nil {
			t.Fatal(err)
		}
		_, table, _ := strings.Cut(text.String(), "LATENCY")
		if !strings.Contains(table, tt.want) || strings.Contains(table, tt.not) {
			t.Errorf("%s: the table lacks %q or has %q:\n%s", tt.name, tt.want, tt.not, text.String())
		}
	}
}

// TestHostileLoad: whatever is in a report, the page has no tag or attribute but its own.
func TestHostileLoad(t *testing.T) {
	var page bytes.Buffer
	if err := report.LoadHTML(&page, loaded(t)); err != nil {
		t.Fatal(err)
	}
	own := []string{
		"!DOCTYPE", "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "div", "b", "span", "figure", "figcaption", "svg", "line", "text", "g", "rect",
		"details", "summary", "table", "tr", "th", "td", "polyline", "circle", "code", "footer", "ul", "li",
	}
	name := regexp.MustCompile(`^</?([!a-zA-Z0-9]*)`)
	for _, found := range tag.FindAllString(page.String(), -1) {
		if !slices.Contains(own, name.FindStringSubmatch(found)[1]) {
			t.Fatalf("the page has the tag %q", found)
		}
	}
	for _, want := range []string{"Latency against the rate", "Over time", "By target", "limits", "Audit of the limiter", "Retry-After, X-RateLimit-*"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page has no %q", want)
		}
	}
}

func TestLoadText(t *testing.T) {
	var text bytes.Buffer
	r := loaded(t)
	r.Found.Because, r.Audit.Findings[0].Text = nil, "text" // They are ours.
	if err := report.LoadText(&text, r); err != nil {
		t.Fatal(err)
	}
	plain(t, text.String())
	for _, want := range []string{"SUSTAINABLE: 100 a second", "RATE", "TARGET", "LIMITS", "AUDIT", "Retry-After, X-RateLimit-*"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
	if err := report.LoadText(failing{}, r); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("the error is %v", err)
	}
	if err := report.LoadHTML(failing{}, r); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("the error is %v", err)
	}
	if err := report.LoadHTML(io.Discard, &load.Report{}); err != nil {
		t.Errorf("HTML of nothing: %v", err)
	}
	if err := report.LoadText(io.Discard, &load.Report{}); err != nil {
		t.Errorf("text of nothing: %v", err)
	}
}
