package serverbench

import (
	"context"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
)

// proxied is a ReverseProxy before the upstream server, until the test ends.
func proxied(t *testing.T) (addr string) {
	t.Helper()
	upstream, stopUpstream, err := serveDocument(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stopUpstream)
	addr = unused(t)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Echo(ctx, addr, "proxy", "http://"+upstream) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
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
	asked := items(10)
	s, err := overHTTP(measure.Plan{Callers: 4}, asked)(t.Context(), addr, 50*time.Millisecond)
	if err != nil || s.Done == 0 {
		t.Errorf("%d requests were answered, %v", s.Done, err)
	}
	plan := measure.Plan{Rounds: 1, Slice: 200 * time.Millisecond, Callers: 4}
	running := []contender{{name: "running", addr: addr}}
	rows, err := paced(t.Context(), new(measure.Work), plan, running, asked, 500)
	if err != nil || rows[0].Samples[0][0].Took.TotalCount() != 100 || rows[0].Median(0, measure.Sample.P50) <= 0 {
		t.Errorf("the requests took %+v, %v", rows, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	plan.Slice = time.Minute
	if _, err := paced(ctx, new(measure.Work), plan, running, asked, 500); err == nil {
		t.Error("a load goes on that was cancelled")
	}
}

func TestWhatDoesNotStart(t *testing.T) {
	t.Parallel()
	if err := Echo(t.Context(), "127.0.0.1:0", "proxy", "nowhere"); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("the error is %v, want the upstream server named", err)
	}
	if err := Echo(t.Context(), "nowhere", "proxy", "http://127.0.0.1:1"); err == nil {
		t.Error("it serves at no address")
	}
}

// timed is a row whose requests all took so long.
func timed(name string, took time.Duration) measure.Row {
	h := measure.Histogram()
	_ = h.RecordValue(took.Nanoseconds())
	r := measure.Row{Name: name}
	r.Add(0, measure.Sample{Done: 1, Took: h})
	return r
}

func TestGatewayText(t *testing.T) {
	t.Parallel()
	rows := measure.Rows{{Name: proxyName, Role: measure.Floor, Note: "a note"}, {Name: gatewayName, Role: measure.Ours}}
	rows[0].Add(0, measure.Sample{Done: 1000, Elapsed: time.Second, Server: 50 * time.Millisecond})
	rows[1].Add(0, measure.Sample{Done: 1000, Elapsed: time.Second, Server: 60 * time.Millisecond})
	times := measure.Rows{timed(directName, 2*time.Millisecond), timed(proxyName, 2*time.Millisecond), timed(gatewayName, 2500*time.Microsecond)}
	written := new(report.Text)
	written.Say("%s", besideProxy.table(written, rows))
	gatewayTimes(written, times, 500)
	var got []float64
	for _, bar := range written.Bars {
		got = append(got, math.Round(100*bar.Got)/100)
	}
	if !slices.Contains(got, 1.2) || !slices.Contains(got, 0.5) {
		t.Errorf("measured %v, want 1.2 times the processor time and 0.5 ms among them", got)
	}
	text := written.String()
	for _, want := range []string{"| Headgate gateway, one rule ", "1.20 ×", "Open loop at 500 requests", "All 3 bars are met."} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
}
