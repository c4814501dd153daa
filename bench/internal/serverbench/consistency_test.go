package serverbench

import (
	"bufio"
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/bench/internal/measure"
)

// TestKeys: the busy keys are asked about as often as the text says.
func TestKeys(t *testing.T) {
	t.Parallel()
	k := newKeys(1000)
	var asked [busy]int
	for i := range len(k.order) {
		if at := k.at(i); at < busy {
			asked[at]++
		}
	}
	for i, n := range asked {
		if share := float64(n) * perBusy / float64(len(k.order)); share < 0.95 || share > 1.05 {
			t.Errorf("key %d is asked about %.2f times as often as it should", i, share)
		}
	}
	if len(k.requests) != busy+1000 {
		t.Errorf("there are %d keys", len(k.requests))
	}
}

// TestCounts: what was admitted counts for its key, and nothing but a decision is
// taken for one.
func TestCounts(t *testing.T) {
	t.Parallel()
	c := new(counts)
	answers := bufio.NewReader(strings.NewReader(
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\nHTTP/1.1 503 Service Unavailable\r\nContent-Length: 1\r\n\r\n."))
	for range 2 {
		if err := c.read(1, answers); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.read(1, answers); !errors.Is(err, errStatus) {
		t.Errorf("got %v for a 503", err)
	}
	if c.admitted[1].Load() != 1 || c.denied.Load() != 1 {
		t.Errorf("%d admitted, %d denied; want 1 and 1", c.admitted[1].Load(), c.denied.Load())
	}
}

// TestConsistencyText: of the busy keys the worst counts as too much, and the mean as too
// little; of the rounds the worst.
func TestConsistencyText(t *testing.T) {
	t.Parallel()
	rows, exceeded := make(measure.Rows, len(modes)), make(map[string][]*shares)
	for i, m := range modes {
		h := measure.Histogram()
		_ = h.RecordValue(1e6)
		rows[i].Name = m.name
		rows[i].Add(within, measure.Sample{Done: 100, Admitted: 100, Calls: 100, Took: h})
		rows[i].Add(beyond, measure.Sample{Done: 100, Admitted: 75, Calls: 50, Took: h})
		exceeded[m.name] = []*shares{{1, 1.01, 0.9, 0.9}, {0.5, 1.02, 0.9, 0.9}, {1, 1, 1, 1}}
	}
	if r := exceeded["strict"][1]; r.over() < 0.0199 || r.over() > 0.0201 || r.early() < 0.169 || r.early() > 0.171 {
		t.Errorf("%v too much, %v too little", r.over(), r.early())
	}
	text := consistencyText(consistencyPlan{perSecond: 160}, rows, exceeded).String()
	for _, want := range []string{"25.00 %", "2.00 %", "17.00 %", "| leased, deny cache", "- async: admitted beyond the limit, %: 2.00, must be ≤ 1.00"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if p := modes[3].rules(7); !strings.Contains(p, "limits: [7 per 1s burst 14], consistency: leased, deny_cache: on }") {
		t.Errorf("the policy is %s", p)
	}
}
