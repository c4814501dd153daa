package dashboard

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/test/servers"
)

// hostile are what clients send to those who read logs: markup, scripts, what terminals obey.
var hostile = []string{
	`<script>document.title="owned"</script>`, `"><img src=x onerror=document.title='owned'>`, "</style><script>document.title='owned'</script>", "</title><h1 id=owned>x",
	`\x22><svg onload=document.title=1>`, "javascript:document.title=1", "a\u202egpj.exe", "&lt;b id=owned&gt;", "{{constructor}}${1}", "\x1b[31mred", strings.Repeat("x", 3000),
}

// look opens a report as a file, in which nothing may run and nothing may be loaded, and returns
// its text. Its title begins with what it is a report of.
func (c *chromium) look(t *testing.T, file, of string) string {
	t.Helper()
	ctx := c.window(t)
	axe, err := os.ReadFile(filepath.Join("node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatalf("the tests need axe-core; scripts/install-test-programs installs it: %v", err)
	}
	address := url.URL{Scheme: "file", Path: file}
	do(t, ctx, chromedp.Navigate(address.String()))
	until(t, ctx, `document.readyState === "complete" && document.querySelector("h1")?.offsetHeight > 0`)
	if title := eval[string](t, ctx, "document.title"); !strings.HasPrefix(title, of) {
		t.Errorf("the title is %q", title)
	}
	if got := eval[[]string](t, ctx, `[...document.querySelectorAll("#owned, script, img, iframe, object, embed, link, form, [onload], [onerror], a[href^='javascript']")].map((e) => e.outerHTML.slice(0, 200))`); len(got) > 0 {
		t.Errorf("a line of the log was taken for markup: %q", got)
	}
	if got := eval[[]string](t, ctx, `performance.getEntriesByType("resource").map((e) => e.name)`); len(got) > 0 {
		t.Errorf("the report loads %q", got)
	}
	text := eval[string](t, ctx, "document.documentElement.textContent")
	if strings.ContainsAny(text, "\u202e\x1b\x00") {
		t.Error("what a line holds is obeyed")
	}
	_ = eval[bool](t, ctx, string(axe)+"; true")
	for _, violation := range eval[[]string](t, ctx, `axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations.filter((v) => v.impact === "serious" || v.impact === "critical").map((v) => v.id + ": " + v.nodes.map((n) => n.html).slice(0, 3).join(" ")))`) {
		t.Error(violation)
	}
	do(t, ctx, chromedp.EmulateViewport(390, 844))
	until(t, ctx, "document.documentElement.scrollWidth <= 390")
	return text
}

// run runs the program.
func run(t *testing.T, binary string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(servers.Bounded(t), binary, args...)
	if out, err := cmd.CombinedOutput(); err != nil && cmd.ProcessState.ExitCode() != 1 { // 1: something is found wrong.
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// replayReport: the report of a log whose every line means harm shows these lines as text.
func replayReport(t *testing.T, c *chromium) {
	dir := t.TempDir()
	var log bytes.Buffer
	for i := range 60 * len(hostile) {
		text := hostile[i%len(hostile)]
		quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text)
		fmt.Fprintf(&log, "203.0.113.%d - %s [17/May/2015:10:05:%02d +0000] \"GET /%s HTTP/1.1\" 200 1 \"%s\" \"%s\"\n", i%len(hostile), strings.ReplaceAll(text, " ", "_"), i%60, quoted, quoted, quoted)
		if i%20 == 0 {
			fmt.Fprintf(&log, "broken %s\n", text)
		}
	}
	file, page, policy := filepath.Join(dir, "access.log"), filepath.Join(dir, "report.html"), filepath.Join(dir, "policy.yaml")
	for name, text := range map[string]string{file: log.String(), policy: "rules:\n  - name: user\n    per: [user]\n    limits: [3 per 1m]\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, build(t), "replay", "--quiet", "--config", policy, "--client", "user", "--html", page, file)
	text := c.look(t, page, "Replay of ")
	for _, want := range []string{"</style><script>document.title='owned'</script>", "&lt;b_id=owned&gt;", "{{constructor}}${1}"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report does not show %q", want)
		}
	}
}

// loadReport: the report of a service that answers with harmful fields, at a path that means
// harm, shows them as text.
func loadReport(t *testing.T, c *chromium) {
	var asked atomic.Int64
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Limit", hostile[0])
		w.Header().Set("RateLimit-Policy", `"</script><img src=x onerror=document.title=1>";q=1;w=60`)
		w.Header().Set("Retry-After", hostile[1])
		if asked.Add(1)%2 == 0 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer service.Close()
	page := filepath.Join(t.TempDir(), "report.html")
	run(t, build(t), "load", "--quiet", "--steps", "20,40", "--duration", "1s", "--html", page,
		service.URL+"/'-alert(1)-'?x=<script>document.title=1</script>")
	if text := c.look(t, page, "Load on "); !strings.Contains(text, "alert(1)") {
		t.Error("the report does not show the target")
	}
}
