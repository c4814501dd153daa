package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/test/servers"
)

const questionsPolicy = `subjects:
  table:
    key-of-acme: { tenant: acme }
deny:
  - name: scanners
    match: { ip: 198.51.100.0/24 }
rules:
  - name: login
    match: { route: POST /login }
    per: [ip]
    algorithm: sliding_window
    limits: [5 per 1h]
    on_store_error: deny
  - name: search
    match: { api_key: present }
    per: [api_key]
    algorithm: sliding_window
    limits: [3 per 1h]
    on_store_error: allow
  - name: pages
    match: { route: GET /page }
    per: [ip]
    algorithm: sliding_window
    limits: [100 per 1h]
    on_store_error: local
`

const culprit = "203.0.113.66"

// widths are those of a desk and of a phone.
var widths = []int64{1440, 390}

// TestQuestions plays an operator who knows nothing of the policy, and who is asked seven things: who is
// limited, by which rule, why, since when, is it us or the client, what would it need, and what has
// changed. The store is there, then slow, then gone, and then there again. Every answer is read off a
// page, at both widths. Most of its two minutes it waits, so it has a Chromium of its own, beside TestDashboard.
func TestQuestions(t *testing.T) {
	t.Parallel()
	c := startChromium(t)
	redis := servers.Start(t, servers.Redis)
	delay := new(atomic.Int64)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte(questionsPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "--config", policy, "--store", "redis://"+slow(t, redis.Addr(), delay)+"/0", "--instance", "gate-1")
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			s.try(map[string]string{"ip": culprit, "route": "POST /login"})
			if n%5 == 0 {
				s.try(map[string]string{"ip": fmt.Sprintf("192.0.2.%d", n%200), "route": "GET /page"})
				s.try(map[string]string{"api_key": "key-of-acme"})
				s.try(map[string]string{"ip": "198.51.100.7", "route": "GET /page"})
			}
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
	ctx := c.window(t)
	signIn(t, ctx, s)

	answers := func(want map[string]string) {
		t.Helper()
		for question, text := range want {
			until(t, ctx, fmt.Sprintf(`document.querySelector('dd[data-q=%q]')?.textContent.includes(%q)`, question, text))
		}
	}
	each := func(path string, ask func()) {
		t.Helper()
		for _, width := range widths {
			do(t, ctx, chromedp.EmulateViewport(width, 900), chromedp.Navigate(s.pages+path))
			shown, _, _ := strings.Cut(path, "?")
			until(t, ctx, fmt.Sprintf(`document.getElementById("main").dataset.shown === %q`, shown))
			ask()
		}
	}
	// From the first page two clicks lead to the answers.
	each("/", func() {
		until(t, ctx, fmt.Sprintf(`document.querySelector('[aria-label="Clients"] td a')?.textContent === %q`, culprit))
		until(t, ctx, `document.body.innerText.includes("scanners")`)
		click(t, ctx, `[aria-label="Clients"] td a`)
		answers(map[string]string{
			"who": "ip " + culprit, "rule": "login, by its limit 5 per 1h", "why": "5 per 1h is used up. One more unit fits in ", "since": "Denied since ",
			"us": "It is the client", "needs": " per 1h instead of 5 per 1h: it asked for ", "changed": "the instance gate-1 was started at ",
		})
	})
	// A client is found by its secret, and is shown with its name.
	each("/clients", func() {
		do(t, ctx, chromedp.SendKeys(`input[type="search"]`, "key-of-acme\r"))
		until(t, ctx, `document.querySelector('[aria-label="Clients"]')?.innerText.includes("tenant acme")`)
		if shown := eval[string](t, ctx, "location.href + document.querySelector('[aria-label=Clients]').innerText"); strings.Contains(shown, "key-of-acme") {
			t.Errorf("the secret is shown: %s", shown)
		}
		click(t, ctx, `[aria-label="Clients"] td a`)
		answers(map[string]string{"who": "known as tenant acme", "rule": "search, by its limit 3 per 1h"})
	})
	each("/clients", func() {
		// A page that is loaded again looks for the same.
		_ = eval[string](t, ctx, `document.querySelector('input[type="search"]').value = ""`)
		do(t, ctx, chromedp.SendKeys(`input[type="search"]`, "198.51.100.7\r"))
		until(t, ctx, `document.body.innerText.includes("It is on the deny list: scanners.")`)
	})

	delay.Store(int64(80 * time.Millisecond))
	of := "/key?rule=login&key=" + eval[string](t, ctx, fmt.Sprintf(`btoa(%q).replace(/=+$/, "")`, culprit))
	each(of, func() {
		until(t, ctx, `document.getElementById("status").innerText.startsWith("The store is slow")`)
		answers(map[string]string{"why": "5 per 1h is used up", "us": "The store is slow, which delays clients and denies none"})
	})
	delay.Store(0)

	redis.Kill()
	each("/", func() {
		until(t, ctx, `document.getElementById("status").className === "status bad" && document.getElementById("status").innerText.startsWith("The store does not answer")`)
		for _, sentence := range []string{"login refuses all.", "search is open: it lets all in, uncounted.", "pages enforces "} {
			until(t, ctx, fmt.Sprintf(`document.querySelector(".outage")?.innerText.includes(%q)`, sentence))
		}
		until(t, ctx, `document.querySelector(".lead").textContent.includes(" requests got no answer. ")`)
	})
	each("/rule?rule=login", func() {
		until(t, ctx, `[...document.querySelectorAll(".note.bad")].some((n) => n.textContent.includes("The rule refuses all.")) && document.querySelector(".lead .bad")?.textContent.includes(" got no answer")`)
	})
	each(of, func() {
		until(t, ctx, `!document.body.innerText.includes("Every limit has room")`)
		answers(map[string]string{
			"rule": "login, which refuses all while the store does not answer", "why": "nobody knows what the key has used. login refuses all.",
			"since": "ithout the store since ", "us": "It is us: the store does not answer", "changed": "the store did not answer at ",
		})
	})

	redis.Restart()
	each(of, func() {
		until(t, ctx, `!document.getElementById("status").className.includes("bad")`)
		answers(map[string]string{"changed": "the store did not answer at ", "why": "5 per 1h is used up"})
	})

	// The server itself is gone: each page says so, in red.
	for _, width := range widths {
		do(t, ctx, chromedp.EmulateViewport(width, 900), chromedp.Navigate(s.pages+"/denials"))
		until(t, ctx, `document.getElementById("status").className !== "status"`)
		if width == widths[0] {
			continue
		}
		s.end()
		until(t, ctx, `document.getElementById("status").className === "status bad" && document.querySelector("main .note.bad").textContent.startsWith("The server does not answer")`)
	}
}

// slow passes connections on to an address, each piece as much later as delay says.
func slow(t *testing.T, to string, delay *atomic.Int64) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	pass := func(from, into net.Conn) {
		defer from.Close()
		defer into.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := from.Read(buffer)
			time.Sleep(time.Duration(delay.Load()))
			if _, failed := into.Write(buffer[:n]); err != nil || failed != nil {
				return
			}
		}
	}
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			go pass(in, out)
			go pass(out, in)
		}
	}()
	return listener.Addr().String()
}

// try asks whether a request may pass, whatever the answer.
func (s *site) try(descriptor map[string]string) {
	body, _ := json.Marshal(map[string]any{"descriptor": descriptor}) // It has only texts.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.api+"/v1/check", bytes.NewReader(body))
	if err != nil {
		return
	}
	request.Header.Set("Content-Type", "application/json")
	if response, err := http.DefaultClient.Do(request); err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
}
