package dashboard

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/test/servers"
)

const (
	// within bounds what a test waits for on a busy machine.
	within = 2 * time.Minute
	token  = "three-in-the-morning"
)

const policyFile = `models:
  - { model: "m*", input: 1, output: 2 }
rules:
  - { name: budget, match: { team: present }, per: [team], counts: money, algorithm: fixed_window, limits: [50_000_000 per calendar month] }
  - name: visitors
    per: [ip]
    algorithm: sliding_window
    limits: [600 per 1h]
  - name: downloads
    match: { route: GET /files/* }
    per: [ip]
    algorithm: sliding_window
    limits: [10 per 1h]
  - name: named
    per: [user]
    limits: [1 per 1h]
  - name: reports
    match: { tenant: present }
    per: [tenant]
    in_progress: { limit: 3, shared: true, ttl: 1h }
`

// evil are keys that do harm where they are taken for more than text.
var evil = []string{
	`<script>document.title="owned"</script>`, `</script><img src=x onerror="document.title='owned'">`,
	"a\u202egpj.exe\u2066", "nul\x00inside", "\x1b[2J\x1b[31mred", `"><b id=owned>`, "{{constructor}}${1}", strings.Repeat("\U0001f4a3", 230),
}

// site is a server with a dashboard.
type site struct {
	api, pages string
	end        func()
}

// built builds the program, once: the go command takes half a second to see that nothing changed.
var built = sync.OnceValues(servers.Headgate)

// build returns the program.
func build(t *testing.T) string {
	t.Helper()
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// start starts the program, with more flags, and waits until it says where it serves.
func start(t *testing.T, flags ...string) *site {
	t.Helper()
	dir, binary := t.TempDir(), build(t)
	file := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(file, []byte(policyFile), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	flags = append([]string{"serve", "--config", file, "--listen", "127.0.0.1:0", "--dashboard-listen", "127.0.0.1:0", "--log-format", "json"}, flags...)
	cmd := exec.CommandContext(t.Context(), binary, flags...)
	cmd.Env = append(os.Environ(), "HEADGATE_ADMIN_TOKEN="+token)
	cmd.Stderr = log
	servers.Bind(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(end)
	api := regexp.MustCompile(`"msg":"serving","address":"([^"]+)"`)
	pages := regexp.MustCompile(`"msg":"serving the dashboard","address":"([^"]+)"`)
	for deadline := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(log.Name())
		a, p := api.FindSubmatch(text), pages.FindSubmatch(text)
		if a != nil && p != nil {
			return &site{string(a[1]), string(p[1]), end}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server does not serve:\n%s", text)
		}
	}
}

// check asks whether a request may pass, so many times.
func (s *site) check(t *testing.T, times int, descriptor map[string]string) {
	t.Helper()
	for range times {
		s.post(t, "/v1/check", map[string]any{"descriptor": descriptor})
	}
}

// acquire asks for a permit, or a place in line.
func (s *site) acquire(t *testing.T, key, holder string) {
	t.Helper()
	s.post(t, "/v1/permits/acquire", map[string]any{"rule": "reports", "key": key, "holder": holder, "keep_ms": 10_000})
}

// spend reserves and settles a call to a language model.
func (s *site) spend(t *testing.T, team, model string, tokens int64) {
	t.Helper()
	id := rand.Text()
	s.post(t, "/v1/reserve", map[string]any{"descriptor": map[string]string{"team": team, "model": model}, "usage": map[string]any{"input_tokens": tokens, "output_tokens": tokens / 2}, "id": id})
	s.post(t, "/v1/settle", map[string]any{"reservation": id, "usage": map[string]any{"model": model, "input_tokens": tokens, "output_tokens": tokens / 4}})
}

func (s *site) post(t *testing.T, path string, what any) {
	t.Helper()
	body, err := json.Marshal(what)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(servers.Bounded(t), http.MethodPost, s.api+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d", body, response.StatusCode)
	}
}

// TestDashboard has one Chromium for its tests, because each takes seconds of a processor to start.
// Each test has a server of its own, and a window that shares nothing with those of others.
func TestDashboard(t *testing.T) {
	t.Parallel()
	c := startChromium(t)
	for _, test := range []struct {
		name string
		run  func(t *testing.T, c *chromium)
	}{
		{"abuser", abuser},
		{"pages", pages},
		{"live", live},
		{"flow", flowPage},
		{"regions", regionsPage},
		{"lab", labPage},
		{"lab as a file", labFile},
		{"report of a replay", replayReport},
		{"report of a load", loadReport},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, c) })
	}
}

// chromium is a running browser.
type chromium struct {
	// first is the window with which the browser starts. The browser ends with it. The library
	// knows windows by their contexts.
	first context.Context
}

// startChromium starts a browser, which ends when the test and its subtests do.
func startChromium(t *testing.T) *chromium {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Fatalf("the tests need Chromium; scripts/install-test-programs installs it: %v", err)
	}
	// By itself the library gives up on a browser that takes twenty seconds to start.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.ExecPath("chromium"), chromedp.WSURLReadTimeout(within))
	alloc, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return &chromium{ctx}
}

// window opens a window until the test ends. It has no cookies, storage or cache of others.
func (c *chromium) window(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := chromedp.NewContext(c.first, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1280, 860)); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// do does steps in the tab.
func do(t *testing.T, ctx context.Context, steps ...chromedp.Action[chromedp.Void]) { //nolint:revive // The context is the tab.
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

// eval returns what a script is worth.
func eval[T any](t *testing.T, ctx context.Context, script string) T { //nolint:revive // The context is the tab.
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%.80s: %v", script, err)
	}
	return value
}

// until waits until a script is true.
func until(t *testing.T, ctx context.Context, script string) { //nolint:revive // The context is the tab.
	t.Helper()
	// Some of it comes with the next minute, and each question costs the browser and the test.
	wait := 25 * time.Millisecond
	for end := time.Now().Add(within); !eval[bool](t, ctx, "!!("+script+")"); time.Sleep(wait) {
		wait = min(2*wait, 400*time.Millisecond)
		if time.Now().After(end) {
			t.Fatalf("it does not become true: %s\n%s", script, eval[string](t, ctx, "document.body.innerText"))
		}
	}
}

// click clicks at an element, once it is there and nothing lies over it. All of that is one script:
// where the mouse of the library arrives, the page may have moved since it was asked where to go.
func click(t *testing.T, ctx context.Context, selector string) { //nolint:revive // The context is the tab.
	t.Helper()
	until(t, ctx, fmt.Sprintf(`(() => {
		const e = document.querySelector(%q);
		e?.scrollIntoView({ block: "center" });
		const box = e?.getClientRects()[0];
		const there = box && !e.disabled && e.contains(document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2));
		if (there) e.click();
		return there;
	})()`, selector))
}

func signIn(t *testing.T, ctx context.Context, s *site) { //nolint:revive // The context is the tab.
	t.Helper()
	do(t, ctx, chromedp.Navigate(s.pages), chromedp.WaitVisible("#token"), chromedp.SendKeys("#token", "not the admin token\r"))
	until(t, ctx, `document.querySelector(".login .bad").textContent.includes("not the admin token")`)
	do(t, ctx, chromedp.SendKeys("#token", token+"\r"))
	until(t, ctx, `document.getElementById("main").dataset.shown === "/"`)
}

// abuser plays a real access log with an abuser among its hundreds of clients, who is found in
// two clicks: the rule, the key, and there is the reason.
func abuser(t *testing.T, c *chromium) {
	s := start(t)
	s.play(t)
	ctx := c.window(t)
	signIn(t, ctx, s)
	until(t, ctx, `document.querySelector(".lead")?.textContent.startsWith("Most denials come from the rule downloads")`)
	until(t, ctx, `document.querySelector("td a[data-link]")?.textContent === "downloads"`)
	click(t, ctx, "td a[data-link]")
	until(t, ctx, `document.querySelector(".lead")?.textContent.includes("Most denials go to one key")`)
	until(t, ctx, `document.querySelector("td a.key")?.textContent === "203.0.113.66"`)
	click(t, ctx, "td a.key")
	until(t, ctx, `document.querySelector(".lead")?.textContent.startsWith("10 per 1h is used up.")`)
	until(t, ctx, `document.querySelectorAll(".state").length === 2 && document.querySelectorAll("td time").length > 0`)

	// Each of the ten units of its window stands on the line, and in the table below it.
	until(t, ctx, `document.querySelector(".freeline").getAttribute("aria-label").startsWith("0 of 10 units are free now, ")`)
	if dots := eval[int](t, ctx, `document.querySelector(".freeline").querySelectorAll("i").length`); dots < 1 || dots > 10 {
		t.Errorf("%d units stand on the line", dots)
	}
	if free := eval[string](t, ctx, `[...document.querySelector(".state details").querySelectorAll("tr")].at(-1).lastChild.textContent`); free != "10" {
		t.Errorf("in the end %s units are free", free)
	}

	// An override is written for the policy file, for this key alone.
	click(t, ctx, ".head .row button")
	do(t, ctx, chromedp.WaitVisible("#override-limits"))
	until(t, ctx, `document.querySelector("dialog pre").textContent.startsWith('    overrides:\n      - match: { ip: "203.0.113.66" }\n        limits: [10 per 1h]\n        until: 20')`)
	click(t, ctx, `dialog[open] .row:last-child button:last-child`)
	until(t, ctx, `!document.querySelector("dialog[open]")`)

	// Times are rounded up, and nothing is 59 min 60 s.
	for ms, want := range map[int]string{-1: "never", 0: "0 ms", 999: "999 ms", 1001: "1.1 s", 9950: "10.0 s", 59_001: "1 min 0 s", 3_599_001: "1 h 0 min", 3_540_000: "59 min 0 s", 86_399_000: "1.0 days"} {
		if got := eval[string](t, ctx, fmt.Sprintf(`import("/lib.js").then((lib) => lib.duration(%d))`, ms)); got != want {
			t.Errorf("%d ms are %q, want %q", ms, got, want)
		}
	}

	// The link leads a colleague to the same page.
	do(t, ctx, chromedp.Reload())
	until(t, ctx, `document.querySelector("h1.key")?.textContent === "203.0.113.66"`)

	// A reset needs the name of the rule.
	click(t, ctx, ".head button.danger")
	do(t, ctx, chromedp.WaitVisible("#confirm"), chromedp.SendKeys("#confirm", "download"))
	if !eval[bool](t, ctx, `document.querySelector("dialog button.danger").disabled`) {
		t.Error("a reset does not need the name of the rule")
	}
	do(t, ctx, chromedp.SendKeys("#confirm", "s\r"))
	until(t, ctx, `document.querySelector(".lead")?.textContent.startsWith("There is room now.")`)
	click(t, ctx, `nav a[href="/audit"]`)
	until(t, ctx, `document.body.innerText.includes("rule downloads, key 203.0.113.66")`)
	click(t, ctx, "#leave")
	do(t, ctx, chromedp.WaitVisible("#token"))
}

// play asks for the first requests of the log whether they may pass, and for an abuser's
// downloads among them.
func (s *site) play(t *testing.T) {
	t.Helper()
	file, err := os.Open(filepath.Join("..", "..", "tune", "testdata", "access.log.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(plain)
	const requests = 2500
	n := 0
	for ; n < requests && lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		s.check(t, 1, map[string]string{"ip": words[0], "route": strings.TrimPrefix(words[5], `"`) + " " + words[6]})
		if n%10 == 0 {
			s.check(t, 1, map[string]string{"ip": "203.0.113.66", "route": "GET /files/logstash/logstash-1.3.2-monolithic.jar"})
		}
	}
	if lines.Err() != nil || n != requests {
		t.Fatalf("%d lines, %v", n, lines.Err())
	}
}

// pages shows every page in both themes, at both widths, with keys that would do harm, and has axe
// look at them. Only colours differ between the themes. So axe looks at those alone in the dark,
// where pages of the same make are shown once.
func pages(t *testing.T, c *chromium) {
	axe, err := os.ReadFile(filepath.Join("node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatalf("the tests need axe-core; scripts/install-test-programs installs it: %v", err)
	}
	// What is left of budgets is looked at later, and they begin anew with the month.
	for now := time.Now().UTC(); now.Add(2*within).Month() != now.Month(); now = time.Now().UTC() {
		time.Sleep(time.Second)
	}
	s := start(t, "--consumer", consumers(t), "--consumer", "http://127.0.0.1:1/metrics", "--history", remembered(t))
	for _, key := range evil {
		s.check(t, 3, map[string]string{"user": key})
		s.acquire(t, key, key[:min(len(key), 128)])
		s.spend(t, key, "m1", 1_000_000)
	}
	s.spend(t, "team a", "m1", 20_000_000)
	ctx := c.window(t)
	signIn(t, ctx, s)
	do(t, ctx, chromedp.Navigate(s.pages+"/rule?rule=named"))
	// A key may be in several tables of the page.
	const shown = `[...new Set([...document.querySelectorAll("td a.key")].map((a) => a.getAttribute("href")))]`
	until(t, ctx, fmt.Sprintf(`%s.length >= %d`, shown, len(evil)))
	links := eval[[]string](t, ctx, shown)
	if len(links) != len(evil) {
		t.Errorf("%d keys are shown of %d", len(links), len(evil))
	}
	// What was before the start is shown with its day, and what happened then.
	do(t, ctx, chromedp.Navigate(s.pages+"/"))
	click(t, ctx, `[data-f="range10080m"]`)
	until(t, ctx, `document.body.textContent.includes("Requests and rules are from a file.") && [...document.querySelectorAll("td")].some((td) => td.textContent === "old")`)
	until(t, ctx, `[...document.querySelectorAll("details tr")].some((tr) => /^\d\d-\d\d \d\d:\d\d99/.test(tr.textContent) && tr.textContent.endsWith("4,321")) && document.body.textContent.includes("of the day before yesterday")`)

	paths := append([]string{"/", "/rule", "/rule?rule=named", "/rule?rule=downloads", "/?range=10080m", "/rule?rule=named&range=1440m", "/clients", "/clients?rule=named", "/denials", "/store", "/policy", "/flow", "/lab", "/audit"}, links...)
	for _, theme := range []string{"light", "dark"} {
		only := ""
		if theme == "dark" {
			paths, only = paths[:len(paths)-len(links)+1], `, runOnly: {type: "rule", values: ["color-contrast", "link-in-text-block"]}`
		}
		do(t, ctx, func(ctx context.Context, tab *chromedp.Target) (chromedp.Void, error) {
			_, err := cdp.Call(ctx, tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
			return chromedp.Void{}, err
		})
		for _, path := range paths {
			shown, _, _ := strings.Cut(path, "?")
			do(t, ctx, chromedp.EmulateViewport(widths[0], 860), chromedp.Navigate(s.pages+path))
			until(t, ctx, fmt.Sprintf(`document.getElementById("main").dataset.shown === %q && document.getElementById("status").className !== "status"`, shown))
			// A busy machine may be late with its news, which the page says for a while.
			until(t, ctx, `!document.querySelector(".note.bad:not([hidden])")`)
			if path == "/clients" {
				until(t, ctx, `["30.00", "42.00", "20.00"].every((n) => document.querySelector("main").innerText.includes(n))`)
			}
			if title := eval[string](t, ctx, "document.title"); !strings.HasSuffix(title, " · Headgate") || eval[bool](t, ctx, `!!document.querySelector("#owned, main script, main img")`) {
				t.Errorf("%s: a key was taken for markup: %q", path, title)
			}
			if text := eval[string](t, ctx, "document.body.textContent"); strings.ContainsAny(text, "\u202e\u2066\x00\x1b") {
				t.Errorf("%s: what a key holds is obeyed", path)
			}
			looked := path == links[0] || !slices.Contains(links, path)
			if looked {
				_ = eval[bool](t, ctx, string(axe)+"; true")
			}
			for _, width := range widths {
				do(t, ctx, chromedp.EmulateViewport(width, 860))
				// Charts follow the width of the window a frame or two later.
				var wide int64
				for end := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
					if wide = eval[int64](t, ctx, "document.documentElement.scrollWidth"); wide <= width || time.Now().After(end) {
						break
					}
				}
				if wide > width {
					t.Errorf("%s: it is %d wide, and the window %d", path, wide, width)
				}
				// The pages of keys differ in the keys alone, which were looked for above.
				if !looked {
					continue
				}
				found := eval[[]string](t, ctx, `axe.run(document, {resultTypes: ["violations"]`+only+`}).then((r) => r.violations.filter((v) => v.impact === "serious" || v.impact === "critical").map((v) => v.id + ": " + v.nodes.map((n) => n.html).slice(0, 3).join(" ")))`)
				for _, violation := range found {
					t.Errorf("%s in the %s theme, %d wide: %s", path, theme, width, violation)
				}
			}
		}
	}
}

// remembered is the history of a process that served the day before yesterday.
func remembered(t *testing.T) string {
	t.Helper()
	hour := time.Now().Add(-48 * time.Hour).Truncate(time.Hour).Unix()
	path := filepath.Join(t.TempDir(), "history")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	packed := gzip.NewWriter(file)
	if _, err := fmt.Fprintf(packed, `{"history_of_headgate":1,"spans":[{"at":%d,"of":600,"all":{"allowed":4321,"denied":99},"rules":{"old":{"allowed":4321,"denied":99}}}],"marks":[{"at":%d,"kind":"policy","text":"of the day before yesterday"}]}`, hour, hour*1000); err != nil {
		t.Fatal(err)
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// live shows denials as they happen.
func live(t *testing.T, c *chromium) {
	s := start(t)
	ctx := c.window(t)
	signIn(t, ctx, s)
	click(t, ctx, `nav a[href="/denials"]`)
	until(t, ctx, `document.getElementById("main").dataset.shown === "/denials" && document.getElementById("status").className !== "status"`)
	for i := range 3 {
		key := fmt.Sprintf("live-%d", i)
		// The stream may just be opening.
		for end := time.Now().Add(within); !eval[bool](t, ctx, fmt.Sprintf(`document.body.textContent.includes(%q)`, key)); time.Sleep(200 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the denial of %s is not shown", key)
			}
			s.check(t, 2, map[string]string{"user": key})
		}
	}
	do(t, ctx, chromedp.SendKeys(`input[type="search"]`, "live-1"))
	until(t, ctx, `[...document.querySelectorAll("td a.key")].length > 0 && [...document.querySelectorAll("td a.key")].every((a) => a.textContent === "live-1")`)

	// A link can be followed while rows come: what is pressed stays until it is let go.
	for end := time.Now().Add(within); !eval[bool](t, ctx, `location.pathname === "/key"`); {
		if time.Now().After(end) {
			t.Fatal("a click is lost when the rows change between press and release")
		}
		at := eval[[2]float64](t, ctx, `(() => { const box = document.querySelector("td a.key").getBoundingClientRect(); return [box.left + box.width / 2, box.top + box.height / 2]; })()`)
		do(t, ctx, chromedp.MouseEvent(input.DispatchMouseEventTypeMousePressed, at[0], at[1], chromedp.ButtonLeft, chromedp.ClickCount(1)))
		_ = eval[bool](t, ctx, `document.querySelector('input[type="search"]').dispatchEvent(new Event("input"))`)
		do(t, ctx, chromedp.MouseEvent(input.DispatchMouseEventTypeMouseReleased, at[0], at[1], chromedp.ButtonLeft, chromedp.ClickCount(1)))
	}
}
