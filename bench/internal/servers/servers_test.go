package servers

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const info = "# CPU\r\nused_cpu_sys_main_thread:0.250000\r\nused_cpu_user_main_thread:1.500000\r\n" +
	"# Commandstats\r\ncmdstat_evalsha:calls=10,usec=45,usec_per_call=4.50,rejected_calls=0,failed_calls=0\r\n" +
	"cmdstat_eval:calls=2,usec=5,usec_per_call=2.50,rejected_calls=0,failed_calls=0\r\n" +
	"cmdstat_get:calls=12,usec=3,usec_per_call=0.25,rejected_calls=0,failed_calls=0\r\n"

func TestParseUsage(t *testing.T) {
	got, err := parseUsage(parseInfo(info))
	want := Usage{CPU: 1750 * time.Millisecond, Scripts: 50 * time.Microsecond, Calls: 12}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if got := got.Sub(Usage{CPU: time.Second, Scripts: 20 * time.Microsecond, Calls: 2}); got != (Usage{750 * time.Millisecond, 30 * time.Microsecond, 10}) {
		t.Errorf("the difference is %+v", got)
	}
	for _, c := range []struct{ from, to, problem string }{
		{"used_cpu_user_main_thread:1.500000", "x:1", "used_cpu_user_main_thread"},
		{"usec=45", "usec=x", "cmdstat_evalsha"},
		{"calls=10,", "", `"calls"`},
	} {
		_, err := parseUsage(parseInfo(strings.Replace(info, c.from, c.to, 1)))
		if err == nil || !strings.Contains(err.Error(), c.problem) {
			t.Errorf("without %q the error is %v, want %q in it", c.from, err, c.problem)
		}
	}
}

func FuzzParseUsage(f *testing.F) {
	f.Add(info)
	f.Add("used_cpu_user_main_thread:1\nused_cpu_sys_main_thread:2\ncmdstat_eval:calls=1")
	f.Fuzz(func(t *testing.T, text string) {
		if u, err := parseUsage(parseInfo(text)); err != nil && u != (Usage{}) {
			t.Errorf("parseUsage(%q) = %+v beside the error %v", text, u, err)
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

// TestWhatDoesNotStart: the error names the program, and says whether it is missing.
func TestWhatDoesNotStart(t *testing.T) {
	if _, err := StartRedis(t.Context(), "no-such-server"); !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "no-such-server") {
		t.Errorf("the error is %v, want the program named", err)
	}
	if _, err := Start(t.Context(), []string{"/nonexistent/server", "ADDR"}); err == nil || !strings.Contains(err.Error(), "/nonexistent/server") {
		t.Errorf("the error is %v, want the program named", err)
	}
}
