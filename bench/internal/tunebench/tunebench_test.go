package tunebench

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/servers"
)

// TestReaders: what generators print is understood.
func TestReaders(t *testing.T) {
	for _, g := range generators() {
		text := map[string]string{
			"headgate":         `{"sent": 1000, "latency_ms": {"p99": 12.5}, "lag_ms": {"p99": 0.5}}`,
			"oha":              `{"latencyPercentiles": {"p99": 0.0125}, "statusCodeDistribution": {"200": 1000}}`,
			"oha, uncorrected": `{"latencyPercentiles": {"p99": 0.0125}, "statusCodeDistribution": {"200": 1000}}`,
			"fortio":           `{"DurationHistogram": {"Count": 1000, "Percentiles": [{"Percentile": 99, "Value": 0.0125}]}}`,
			"hey":              "response-time,a\n" + strings.Repeat("0.001,1\n", 990) + strings.Repeat("0.0125,1\n", 10),
			"wrk":              "  Latency Distribution\n     50%   51.00us\n     99%   12.50ms\n  1000 requests in 3.00s, 1MB read\n",
		}[g.name]
		got, err := g.read([]byte(text))
		if err != nil || got.sent != 1000 || got.p99 != 12500*time.Microsecond {
			t.Errorf("%s: %+v, %v", g.name, got, err)
		}
		if _, err := g.read([]byte("what")); err == nil {
			t.Errorf("%s: nonsense is read", g.name)
		}
	}
}

// TestMove: copies of a log have other clients and later times, and are logs.
func TestMove(t *testing.T) {
	const line = `203.0.113.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "-"` + "\n"
	seen := make(map[string]bool)
	for n := range 500 {
		got, err := move([]byte(line), n)
		if err != nil || seen[string(got)] || !strings.HasSuffix(string(got), line[strings.IndexByte(line, ']'):]) {
			t.Fatalf("copy %d is %q, %v", n, got, err)
		}
		seen[string(got)] = true
	}
	if got, _ := move([]byte(line), 3); !strings.Contains(string(got), "[29/May/2015:10:05:03 +0000]") {
		t.Errorf("copy 3 is %q", got)
	}
	if _, err := move([]byte("no time\n"), 1); err == nil {
		t.Error("a line without a time is moved")
	}
}

// TestShort: both parts run, with the generators and readers that are there.
func TestShort(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	dir := t.TempDir()
	binary, err := servers.Build(ctx, "../../../server", dir)
	if err != nil {
		t.Fatal(err)
	}
	w := &measure.Work{Tell: t.Logf}
	load, err := runLoad(ctx, w, LoadPlan{Rate: 200, Modest: 100, For: time.Second, Stall: 100 * time.Millisecond, Rounds: 1}, binary)
	if err != nil {
		t.Fatal(err)
	}
	replay, err := runReplay(ctx, w, ReplayPlan{Copies: 1, Rounds: 1}, binary, "../../../tune/testdata/access.log.gz", dir)
	if err != nil {
		t.Fatal(err)
	}
	if replay.lines != 10_000 {
		t.Errorf("the log has %d lines", replay.lines)
	}
	if info, err := os.Stat(filepath.Join(dir, "access.log")); err != nil || info.Size() != replay.bytes {
		t.Errorf("the log: %v, %v", info, err)
	}
	for _, text := range []string{load.text() + report.Bars(load.bars()), replay.text() + report.Bars(replay.bars())} {
		if !strings.Contains(text, "| headgate") || !strings.Contains(text, " bars are met") {
			t.Errorf("the section is\n%s", text)
		}
	}
}
