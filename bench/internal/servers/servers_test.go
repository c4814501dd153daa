package servers

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestParseUsage(t *testing.T) {
	cpu := map[string]string{"used_cpu_sys_main_thread": "0.250000", "used_cpu_user_main_thread": "1.500000"}
	stats := map[string]string{
		"cmdstat_evalsha": "calls=10,usec=45,usec_per_call=4.50,rejected_calls=0,failed_calls=0",
		"cmdstat_eval":    "calls=2,usec=5,usec_per_call=2.50,rejected_calls=0,failed_calls=0",
		"cmdstat_get":     "calls=12,usec=3,usec_per_call=0.25,rejected_calls=0,failed_calls=0",
	}
	got, err := parseUsage(cpu, stats)
	want := Usage{CPU: 1750 * time.Millisecond, Scripts: 50 * time.Microsecond, Calls: 12}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if got := got.Sub(Usage{CPU: time.Second, Scripts: 20 * time.Microsecond, Calls: 2}); got != (Usage{750 * time.Millisecond, 30 * time.Microsecond, 10}) {
		t.Errorf("the difference is %+v", got)
	}
	if _, err := parseUsage(nil, stats); err == nil || !strings.Contains(err.Error(), "used_cpu_user_main_thread") {
		t.Errorf("without the CPU's time the error is %v", err)
	}
	for _, bad := range []string{"", "calls=10", "calls=10,usec=x", "usec=45"} {
		stats["cmdstat_evalsha"] = bad
		if _, err := parseUsage(cpu, stats); err == nil || !strings.Contains(err.Error(), "cmdstat_evalsha") {
			t.Errorf("with %q the error is %v, want the field named", bad, err)
		}
	}
}

func FuzzStatistic(f *testing.F) {
	f.Add("calls=10,usec=45,usec_per_call=4.50")
	f.Add("calls=")
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := statistic(text, "calls"); err == nil && !strings.Contains(text, "calls=") {
			t.Errorf("statistic(%q) = %d", text, n)
		}
	})
}

func TestParseStat(t *testing.T) {
	const stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 1000 0 0 0 150 50 7 8 20 0 9 0 123 456 789"
	got, err := parseStat(stat)
	if err != nil || got != 2*time.Second {
		t.Errorf("parseStat = %v, %v, want 2s", got, err)
	}
	for _, bad := range []string{"", "42 (x) S 1 2", strings.Replace(stat, "150", "x", 1)} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("parseStat(%q) gave no error", bad)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("42 (a) S 1 42 42 0 -1 4194560 1000 0 0 0 150 50 7 8")
	f.Add("(")
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := parseStat(text); err != nil && d != 0 {
			t.Errorf("parseStat(%q) = %v beside the error %v", text, d, err)
		}
	})
}

func TestParseStatm(t *testing.T) {
	if pages, err := parseStatm("5000 1234 800 1 0 900 0\n"); err != nil || pages != 1234 {
		t.Errorf("parseStatm = %d, %v, want 1234", pages, err)
	}
	for _, bad := range []string{"", "5000", "5000 x 800"} {
		if _, err := parseStatm(bad); err == nil {
			t.Errorf("parseStatm(%q) gave no error", bad)
		}
	}
}

func FuzzParseStatm(f *testing.F) {
	f.Add("5000 1234 800 1 0 900 0")
	f.Add("5000")
	f.Fuzz(func(t *testing.T, text string) {
		if pages, err := parseStatm(text); err != nil && pages != 0 {
			t.Errorf("parseStatm(%q) = %d beside the error %v", text, pages, err)
		}
	})
}

// TestWhatDoesNotStart: the error names the program, and says whether it is missing.
func TestWhatDoesNotStart(t *testing.T) {
	if _, err := StartRedis(t.Context(), "no-such-server"); !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "no-such-server") {
		t.Errorf("the error is %v, want the program named", err)
	}
	if _, err := Start(t.Context(), []string{"/nonexistent/server", "ADDR"}); err == nil || !strings.Contains(err.Error(), "/nonexistent/server") {
		t.Errorf("the error is %v, want the program named", err)
	}
}
