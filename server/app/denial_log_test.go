package app

import (
	"log/slog"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/telemetry/insight"
)

// TestDenialLog: all denials are in the log, in few lines, with the key as the policy shows it.
func TestDenialLog(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "live.yaml")
	write(t, file, `rules:
  - name: login
    match: { user: present }
    per: [user]
    limits: [2 per 1h]
  - name: tried
    mode: shadow
    match: { user: present }
    per: [user]
    limits: [1 per 1h]
  - name: keyed
    match: { api_key: present }
    per: [api_key]
    limits: [1 per 1h]
`)
	r := start(t, Settings{PolicyFile: file, DenialLog: true})
	const denials = 50
	for range 2 + denials {
		r.do(t, "POST", "/v1/check", `{"descriptor":{"user":"an\u202ena\n"}}`)
	}
	for range 2 {
		r.do(t, "POST", "/v1/check", `{"descriptor":{"api_key":"not-for-the-log"}}`)
	}
	r.stop() // A server that ends logs what is left.
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
	r.ended <- nil
	log := r.log.String()
	lines, counted := 0, 0
	for _, line := range strings.Split(log, "\n") {
		if !strings.Contains(line, "msg=denied rule=login") {
			continue
		}
		lines++
		times, err := strconv.Atoi(regexp.MustCompile(`times=(\d+)`).FindStringSubmatch(line)[1])
		if err != nil {
			t.Fatal(err)
		}
		counted += times
		if want := `limit="2 per 1h" key=an\u202ena\x0a `; !strings.Contains(line, want) || !strings.Contains(line, "door=http source=store version=1") {
			t.Errorf("%s; want %s", line, want)
		}
	}
	// Those after the last event have none of their own.
	if lines == 0 || counted == 0 || counted > denials || lines > counted {
		t.Errorf("%d denials in %d lines:\n%s", counted, lines, log)
	}
	for _, want := range []string{`msg="would be denied, but its rule is in shadow" rule=tried`, "msg=denied rule=keyed"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no %s:\n%s", want, log)
		}
	}
	if strings.Contains(log, "not-for-the-log") {
		t.Error("the log holds a secret")
	}
	if _, err := New(t.Context(), Settings{DenialLog: true, NoInsight: true}); err == nil || !strings.Contains(err.Error(), "--denial-log: ") {
		t.Errorf("a log of what nobody knows: %v", err)
	}
}

// TestDenialLogLeavesOut: a log that is too slow says what it has left out.
func TestDenialLogLeavesOut(t *testing.T) {
	t.Parallel()
	var second atomic.Int64 // of the recorder, which counts in a goroutine of its own
	recorder := insight.New(insight.Options{Events: 4, Now: func() time.Time { return time.Unix(second.Load(), 0) }})
	defer recorder.Close()
	rule := headgate.MustRule("login", headgate.PerHour(1))
	door := recorder.Door("http")
	out := new(buffer)
	log := &denialLog{from: recorder, logger: slog.New(slog.NewTextHandler(out, nil))}
	deny := func(times int) {
		for range times {
			second.Add(1)
			door.Decided(1, []headgate.Check{{Rule: rule, Key: "anna", Cost: 1}}, []headgate.Decision{{Rule: rule, Limit: &rule.Limits()[0]}})
			recorder.Denials(0, 1) // has what was recorded counted
		}
		log.catchUp(t.Context())
	}
	deny(1)
	deny(10)
	deny(0)
	if text := out.String(); !strings.Contains(text, "denials were not logged: there were too many\" events=6") || strings.Count(text, "msg=denied") != 1+4 {
		t.Errorf("the log is:\n%s", text)
	}
}
