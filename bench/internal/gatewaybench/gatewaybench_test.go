package gatewaybench

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/servicebench"
)

// proxied is a ReverseProxy before the upstream server, until the test ends.
func proxied(t *testing.T) (addr string) {
	t.Helper()
	up, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- serve(ctx, up, http.HandlerFunc(answer)) }()
	go func() { ended <- Serve(ctx, addr, "http://"+up.Addr().String()) }()
	t.Cleanup(func() {
		stop()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
			return addr
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestLoads(t *testing.T) {
	t.Parallel()
	addr := proxied(t)
	asked := requests(10)
	n, err := servicebench.Load(t.Context(), addr, 4, asked, 50*time.Millisecond)
	if err != nil || n == 0 {
		t.Errorf("%d requests were answered, %v", n, err)
	}
	took, err := servicebench.Paced(t.Context(), addr, 4, asked, 500, 200*time.Millisecond)
	if err != nil || len(took) != 100 || !slices.IsSorted(took) || took[0] <= 0 {
		t.Errorf("the requests took %v, %v", took, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := servicebench.Paced(ctx, addr, 4, asked, 500, time.Minute); err == nil {
		t.Error("a load goes on that was cancelled")
	}
}

func TestWhatDoesNotStart(t *testing.T) {
	t.Parallel()
	if err := Serve(t.Context(), "127.0.0.1:0", "nowhere"); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("the error is %v, want the upstream server named", err)
	}
	if err := Serve(t.Context(), "nowhere", "http://127.0.0.1:1"); err == nil {
		t.Error("it serves at no address")
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	took := make([]time.Duration, 100)
	for i := range took {
		took[i] = time.Duration(i)
	}
	for share, want := range map[float64]time.Duration{0: 0, 0.5: 50, 0.99: 99, 1: 99} {
		if got := servicebench.Quantile(took, share); got != want {
			t.Errorf("quantile %v is %d, want %d", share, got, want)
		}
	}
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	sample := func(name string, cpu time.Duration) servicebench.Result {
		return servicebench.Result{Contender: servicebench.Contender{Name: name, Note: "a note"}, Samples: []servicebench.Sample{{Requests: 1000, Elapsed: time.Second, CPU: cpu}}}
	}
	o := &Outcome{
		Outcome:   &servicebench.Outcome{Plan: servicebench.Short(), Results: []servicebench.Result{sample(bare, 50*time.Millisecond), sample(ours, 60*time.Millisecond)}},
		PerSecond: 500,
		Times: []Times{
			{direct, []time.Duration{time.Millisecond}, []time.Duration{2 * time.Millisecond}},
			{bare, []time.Duration{time.Millisecond}, []time.Duration{2 * time.Millisecond}},
			{ours, []time.Duration{time.Millisecond}, []time.Duration{2500 * time.Microsecond}},
		},
	}
	text := o.Markdown()
	for _, want := range []string{"| Headgate gateway, one rule ", "1.20 ×", "Open loop at 500 requests", "| ≤ 1.25 |     1.20 | yes |", "| ≤ 1.00 |     0.50 | yes |"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
}
