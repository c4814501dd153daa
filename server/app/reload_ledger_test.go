package app

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// remembering is a service whose policy can be exchanged, and what it remembers of
// requests is asked for.
type remembering struct {
	*running
	file string
}

func newRemembering(t *testing.T, rules string) *remembering {
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	write(t, file, rules)
	return &remembering{start(t, Settings{PolicyFile: file, Candidate: file, AdminToken: adminToken, lookEvery: time.Hour}), file}
}

// rules has other rules in force.
func (r *remembering) rules(t *testing.T, text string) {
	t.Helper()
	write(t, r.file, text)
	if status, body := r.reload(t, adminToken); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
}

// asks makes a request and compares the status, and the beginning of the answer.
func (r *remembering) asks(t *testing.T, path, body string, status int, begins string) string {
	t.Helper()
	got, text := r.do(t, "POST", path, body)
	if got != status || !strings.HasPrefix(text, begins) {
		t.Errorf("%s %s: %d %s, want %d %s…", path, body, got, text, status, begins)
	}
	return text
}

// left is what the rule has left for anna.
func (r *remembering) left(t *testing.T, want int64) {
	t.Helper()
	var v struct{ Decisions []struct{ Remaining int64 } }
	text := r.asks(t, "/v1/peek", `{"descriptor":{"user":"anna"}}`, 200, "")
	if err := json.Unmarshal([]byte(text), &v); err != nil || len(v.Decisions) == 0 || v.Decisions[0].Remaining != want {
		t.Errorf("%d are left by %s, %v", want, text, err)
	}
}

const noSuchRule = "rules:\n  - name: other\n    per: all\n    limits: [100 per 1h]\n"

// TestReservationsOutliveTheirRule: what was reserved under a rule is settled, once,
// although a reload has taken the rule out of the policy meanwhile.
func TestReservationsOutliveTheirRule(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"10 per 365d", "{count: 10, period: 365d, algorithm: sliding_window}", "{count: 10, period: 365d, algorithm: fixed_window, align: first}"} {
		r := newRemembering(t, rulesOf(limit))
		text := r.asks(t, "/v1/reserve", `{"descriptor":{"user":"anna"},"cost":5}`, 200, `{"allowed":true`)
		var v struct{ Reservation string }
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		r.left(t, 5)
		r.rules(t, noSuchRule)
		settle := func(cost int) string { return fmt.Sprintf(`{"reservation":%q,"cost":%d}`, v.Reservation, cost) }
		for range 2 { // The second answers as the first, and gives nothing back.
			r.asks(t, "/v1/settle", settle(2), 200, `{"allowed":true`)
		}
		r.asks(t, "/v1/settle", settle(1), 409, "")
		r.rules(t, rulesOf(limit))
		r.left(t, 8)
		r.asks(t, "/v1/settle", settle(2), 200, `{"allowed":true`)
		r.left(t, 8)
	}
}

// TestIDsOutliveReloads: a request is charged once although the limits have changed
// before it is repeated, and its id is no other request's.
func TestIDsOutliveReloads(t *testing.T) {
	t.Parallel()
	r := newRemembering(t, rulesOf("10 per 365d"))
	body := func(user string, cost int) string {
		return fmt.Sprintf(`{"descriptor":{"user":%q},"cost":%d,"id":"a"}`, user, cost)
	}
	r.asks(t, "/v1/check", body("anna", 3), 200, `{"allowed":true`)
	r.left(t, 7)
	for _, limit := range []string{"10 per 365d", "20 per 365d", "2 per 365d", "10 per 365d"} {
		r.rules(t, rulesOf(limit))
		r.asks(t, "/v1/check", body("anna", 3), 200, `{"allowed":true`)
		r.asks(t, "/v1/check", body("anna", 2), 409, "")
		r.asks(t, "/v1/check", body("eve", 3), 409, "")
	}
	r.left(t, 7)
}

// TestBlocksOutliveReloads: who is blocked by a penalty stays so when other rules are
// put in force, or the same ones again.
func TestBlocksOutliveReloads(t *testing.T) {
	t.Parallel()
	penalty := rulesOf(`1 per 30m, 2 denials per 1h block 1h`)
	r := newRemembering(t, penalty)
	check := `{"descriptor":{"user":"anna"}}`
	r.asks(t, "/v1/check", check, 200, `{"allowed":true`)
	for range 2 {
		r.asks(t, "/v1/check", check, 200, `{"allowed":false`)
	}
	blocked := func(when string) {
		t.Helper()
		if _, text := r.do(t, "POST", "/v1/check", check); !strings.HasPrefix(text, `{"allowed":false,"denied_by":{"rule":"login","limit":"2 denials`) {
			t.Errorf("%s: %s, want a denial by the penalty", when, text)
		}
	}
	blocked("before a reload")
	r.rules(t, penalty+"  - name: other\n    per: all\n    limits: [100 per 1h]\n")
	blocked("after a reload")
	r.rules(t, noSuchRule)
	r.rules(t, penalty)
	blocked("after the rule was away")
	// What the rule's other limit admits does not lift the block.
	r.rules(t, rulesOf(`100 per 30m, 2 denials per 1h block 1h`))
	blocked("after the other limit was raised")
}
