package report_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/tune/accesslog"
	"github.com/headgate/headgate/tune/replay"
	"github.com/headgate/headgate/tune/report"
)

// hostile is what clients send to those who read logs.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, "\x1b[31mred\x1b]0;title\x07", "\u202egnp.exe", `{{.Policy}}`, `</style><script>alert(2)</script>`,
	`</title><h1>x`, `'-alert(1)-'`, "a\x00b", `javascript:alert(1)`, `&lt;b&gt;`, "\xff\xfe", strings.Repeat("x", 5000), "\u2028\u0085", "%s%n",
}

func replayed(t *testing.T, anonymize bool) *replay.Result {
	t.Helper()
	var log bytes.Buffer
	for i := range 400 {
		text := hostile[i%len(hostile)]
		quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text)
		fmt.Fprintf(&log, "%s - %s [17/May/2015:10:05:%02d +0000] \"GET /%s HTTP/1.1\" %d 1 \"-\" \"%s\"\n", strings.ReplaceAll(text, " ", "_"), text, i%60, quoted, 200+229*(i%2), quoted)
		if i%40 == 0 {
			fmt.Fprintf(&log, "broken %s\n", text)
		}
	}
	name := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(name, log.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := config.Parse("new.yaml", []byte("rules:\n  - { name: client, per: [ip], limits: { tier: { '<b>': [1 per 1m], '*': [3 per 1m] } } }\n  - { name: shadow, mode: shadow, per: [user], limits: [2 per 1m] }\n  - { name: paced, algorithm: leaky_bucket, per: all, limits: [100 per 1s burst 1000] }\n"))
	if err != nil {
		t.Fatal(err)
	}
	old, err := config.Parse("old.yaml", []byte("rules:\n  - { name: client, per: [ip], limits: [4 per 1m] }\n"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := accesslog.Open(t.Context(), []string{name}, accesslog.Options{Format: "combined"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := replay.New(replay.Options{Policy: set, Against: old, Client: "ip", Curve: 1000, Differences: 100, Anonymize: anonymize})
	for {
		s, err := l.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		r.Add(s)
		s.Release()
	}
	result := r.Result(l.Stats())
	if result.Denied == 0 || result.Unreadable == 0 || result.Against.NewlyDenied == 0 || result.Limited == 0 {
		t.Fatalf("the log does not show everything: %+v", result)
	}
	return result
}

var tag = regexp.MustCompile(`<[^>]*>?`)

// TestHostileLogInHTML: whatever clients send, the page has no tag or attribute but its
// own.
func TestHostileLogInHTML(t *testing.T) {
	var page bytes.Buffer
	if err := report.HTML(&page, replayed(t, false), `<script>"x"`); err != nil {
		t.Fatal(err)
	}
	own := []string{
		"!DOCTYPE", "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "div", "b", "span", "figure", "figcaption", "svg", "line", "text", "g", "rect",
		"details", "summary", "table", "tr", "th", "td", "polyline", "circle", "code", "footer",
	}
	attribute := regexp.MustCompile(`\s([a-zA-Z-]+)=`)
	known := []string{"lang", "charset", "http-equiv", "content", "name", "class", "role", "aria-label", "width", "height", "x", "y", "x1", "x2", "y1", "y2", "dy", "text-anchor", "cx", "cy", "r", "points", "viewBox"}
	text := page.String()
	if !strings.Contains(text, "alert(1)") {
		t.Fatal("the hostile clients are not in the page")
	}
	for _, found := range tag.FindAllString(text, -1) {
		name := strings.TrimLeft(found, "</")
		name = name[:len(name)-len(strings.TrimLeft(name, "!abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"))]
		if !slices.Contains(own, name) {
			t.Errorf("the page has the tag %.200q", found)
		}
		if strings.Contains(found, "Content-Security-Policy") || strings.Contains(found, "viewport") {
			continue
		}
		for _, m := range attribute.FindAllStringSubmatch(found, -1) {
			if !slices.Contains(known, m[1]) {
				t.Errorf("the page has the attribute %s in %.200q", m[1], found)
			}
		}
	}
	if !strings.Contains(text, `content="default-src 'none'; style-src &#39;sha256-`) {
		t.Error("the page does not forbid everything but its style")
	}
	plain(t, text)
}

func TestHostileLogInText(t *testing.T) {
	var text bytes.Buffer
	if err := report.Text(&text, replayed(t, false)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "alert(1)") {
		t.Fatal("the hostile clients are not in the report")
	}
	plain(t, text.String())
}

func TestOneRequestOfOneClient(t *testing.T) {
	var text, page bytes.Buffer
	r := &replay.Result{Requests: 1, Admitted: 1, ClientsSeen: 1}
	if err := errors.Join(report.Text(&text, r), report.HTML(&page, r, "")); err != nil {
		t.Fatal(err)
	}
	for _, got := range []string{text.String(), page.String()} {
		if !strings.Contains(got, "1 request of 1 client,") {
			t.Errorf("the report says\n%s", got)
		}
	}
}

// plain fails on what a terminal would obey, and what turns the direction of writing.
func plain(t *testing.T, text string) {
	t.Helper()
	for _, c := range text {
		if c != '\n' && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c) || c == unicode.ReplacementChar || c == '\u2028') {
			t.Fatalf("the report has the character %U", c)
		}
	}
}

// TestAnonymous: neither report has anything of what clients sent.
func TestAnonymous(t *testing.T) {
	result := replayed(t, true)
	var text, page bytes.Buffer
	if err := report.Text(&text, result); err != nil {
		t.Fatal(err)
	}
	if err := report.HTML(&page, result, "p"); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{text.String(), page.String()} {
		for _, secret := range []string{"alert", "gnp", "title\\a", "xxxxx", "onerror"} {
			if strings.Contains(out, secret) {
				t.Errorf("the report has %q", secret)
			}
		}
		if !strings.Contains(out, "client-") {
			t.Error("the report has no names in place of clients")
		}
	}
}

// failing is a writer that is full.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestErrorsOfTheWriterAreTold(t *testing.T) {
	r := replayed(t, false)
	if err := report.Text(failing{}, r); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("Text: %v", err)
	}
	if err := report.HTML(failing{}, r, ""); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("HTML: %v", err)
	}
	if err := report.HTML(io.Discard, &replay.Result{}, ""); err != nil {
		t.Errorf("HTML of nothing: %v", err)
	}
	if err := report.Text(io.Discard, &replay.Result{}); err != nil {
		t.Errorf("Text of nothing: %v", err)
	}
}
