package dashboard

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate/contrib/kafka"
	"github.com/headgate/headgate/contrib/kafka/kafkaprom"
	"github.com/headgate/headgate/contrib/rabbitmq"
	"github.com/headgate/headgate/contrib/rabbitmq/rabbitmqprom"
)

// ofKafka and ofRabbit stand for consumers, of which only the figures are needed.
type (
	ofKafka  kafka.Stats
	ofRabbit rabbitmq.Stats
)

func (s ofKafka) Stats() kafka.Stats     { return kafka.Stats(s) }
func (s ofRabbit) Stats() rabbitmq.Stats { return rabbitmq.Stats(s) }

// consumers serves the metrics of a program with a consumer of each kind, as the collectors
// that such programs use write them.
func consumers(t *testing.T) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	orders := ofKafka{Running: 12, Records: 340, Counts: kafka.Counts{Handled: 52_318, Failed: 41, DeadLettered: 3, Refused: 1907}}
	for i := range int32(24) {
		orders.Partitions = append(orders.Partitions, kafka.PartitionStats{Topic: "orders", Partition: i, Lag: int64(24-i) * 40, Oldest: time.Duration(24-i) * time.Second, Running: 1, Paused: i == 2})
	}
	prometheus.WrapRegistererWith(prometheus.Labels{"consumer": "billing " + evil[0]}, registry).MustRegister(kafkaprom.New(orders))
	registry.MustRegister(rabbitmqprom.New(ofRabbit{Running: 3, Held: 20, Ready: 87, Oldest: 4 * time.Second}))
	s := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(s.Close)
	return s.URL + "/metrics"
}

// flowPage shows who holds permits and what consumers do, and revokes a permit.
func flowPage(t *testing.T, c *chromium) {
	s := start(t, "--consumer", consumers(t))
	for i := range 5 {
		s.acquire(t, "acme", fmt.Sprintf("worker-%d", i))
	}
	s.acquire(t, "other", evil[1])
	ctx := c.window(t)
	signIn(t, ctx, s)
	click(t, ctx, `nav a[href="/flow"]`)
	until(t, ctx, `document.querySelector(".state .small")?.textContent === "3 of 3 in use"`)
	text := func(selector string) []string {
		return eval[[]string](t, ctx, fmt.Sprintf(`[...document.querySelectorAll(%q)].map((e) => e.textContent)`, selector))
	}
	if got := text(".state td:first-child .key"); len(got) < 4 || got[0] != "worker-0" || got[2] != "worker-2" {
		t.Errorf("the holders are %q", got)
	}
	until(t, ctx, `document.body.innerText.includes("</script><img src=x")`)

	// The consumers say what the collectors of their programs say.
	until(t, ctx, `[...document.querySelectorAll(".fact")].some((f) => f.textContent === "12,000lag")`)
	until(t, ctx, `[...document.querySelectorAll(".fact")].some((f) => f.textContent === "87wait in the queue")`)
	until(t, ctx, `document.body.innerText.includes("1 partition paused") && document.body.innerText.includes("not connected")`)
	click(t, ctx, ".state details summary")
	until(t, ctx, `document.querySelector("details[open]")?.innerText.includes("4 more partitions")`)

	// A permit is revoked with the name of the rule only, and the audit keeps it.
	click(t, ctx, `button[aria-label="Revoke the permit of worker-1"]`)
	do(t, ctx, chromedp.WaitVisible("#confirm"), chromedp.SendKeys("#confirm", "report\r"))
	if !eval[bool](t, ctx, `document.querySelector("dialog[open] button.danger").disabled`) {
		t.Error("a permit is revoked without the name of the rule")
	}
	do(t, ctx, chromedp.SendKeys("#confirm", "s\r"))
	until(t, ctx, `!document.querySelector("dialog[open]") && document.querySelector(".state .chip.warn") && !document.querySelector('button[aria-label="Revoke the permit of worker-1"]')`)
	until(t, ctx, `document.querySelector("details[open]")`) // It stays open.
	click(t, ctx, `nav a[href="/audit"]`)
	until(t, ctx, `document.body.innerText.includes("rule reports, key acme, holder worker-1")`)
}
