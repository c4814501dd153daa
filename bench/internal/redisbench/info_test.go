package redisbench

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/workload"
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

func TestAskAllStopsAtTheFirstError(t *testing.T) {
	asked := 0
	_, err := askAll(t.Context(), 1, times(100), func(_ context.Context, i int) error {
		asked++
		if i == 7 {
			return context.DeadlineExceeded
		}
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "decision 7") || asked != 8 {
		t.Errorf("after %d questions the error is %v, want decision 7 named after 8", asked, err)
	}
}

func TestAskAllAsksEachOnce(t *testing.T) {
	const n = 1000
	seen := make(chan int, n)
	latencies, err := askAll(t.Context(), 8, times(n), func(_ context.Context, i int) error {
		seen <- i
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, each := range latencies {
		sum += len(each)
	}
	if sum != n || len(seen) != n {
		t.Errorf("%d latencies of %d questions, want %d of each", sum, len(seen), n)
	}
	once := map[int]bool{}
	for range n {
		once[<-seen] = true
	}
	if len(once) != n {
		t.Errorf("%d different questions, want %d", len(once), n)
	}
}

func TestWindowQuestionsVisitEveryKeyInTurn(t *testing.T) {
	plan := Plan{WindowKeys: 50}
	visits := map[string]int{}
	ask := plan.ask(func(_ context.Context, key string) (bool, error) { visits[key]++; return true, nil }, true)
	for i := range 3 * plan.WindowKeys {
		if err := ask(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	for i := range plan.WindowKeys {
		if n := visits[workload.Key(i)]; n != 3 {
			t.Errorf("key %d was visited %d times, want 3", i, n)
		}
	}
}

// yesToAll admits everything, which is wrong for narrow keys.
func yesToAll() Contender {
	return Contender{Name: "yes to all", Open: func(context.Context, string, workload.Limits) (*Limiter, error) {
		return &Limiter{
			Take:  func(context.Context, workload.Class, string) (bool, error) { return true, nil },
			Close: func() error { return nil },
		}, nil
	}}
}
