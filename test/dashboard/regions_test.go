package dashboard

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/test/servers"
)

const globalPolicy = `rules:
  - name: partner
    per: [tenant]
    limits: [100 per 1s]
    scope: global
`

// regionsPage shows which share of a limit a region has, at both widths, and that it is cut off when
// the home is gone.
func regionsPage(t *testing.T, c *chromium) {
	home, redis := servers.Start(t, servers.Redis), servers.Start(t, servers.Redis)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte(globalPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	region := func(name, store string) *site {
		return start(t, "--config", policy, "--store", store, "--region", name, "--regions", "eu,us", "--region-home", home.URL(), "--region-lease", "4s")
	}
	eu := region("eu", redis.URL())
	region("us", home.URL())
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			eu.try(map[string]string{"tenant": "acme"})
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
	ctx := c.window(t)
	signIn(t, ctx, eu)
	const row = `[...document.querySelectorAll("[aria-label='Shares of the region'] tbody tr")].some((r) => r.innerText.includes("partner") && r.innerText.includes("acme") && / of 100/.test(r.innerText))`
	for _, width := range widths {
		do(t, ctx, chromedp.EmulateViewport(width, 900), chromedp.Navigate(eu.pages+"/store"))
		until(t, ctx, row)
		until(t, ctx, `document.documentElement.scrollWidth <= window.innerWidth`)
	}
	home.Kill()
	until(t, ctx, `document.querySelector(".chip.bad")?.innerText.includes("cut off: has its own part")`)
}
