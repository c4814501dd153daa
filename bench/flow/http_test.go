package flow

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/adaptive"
	"github.com/headgate/headgate/flow/shed"
	"github.com/headgate/headgate/httplimit"
)

var overHTTP = flag.Duration("http", 0, "put gates before a real HTTP server for this `time` each, with the load from another process")

// The server over HTTP: so many workers, and how long each takes for a request on average.
const (
	workers  = 10
	takes    = 100 * time.Millisecond
	capacity = float64(workers) / 0.1 // requests a second
	callers  = time.Second            // for how long a caller waits
)

// loadURL, loadRate and loadFor are the environment of the process that makes the load.
const loadURL, loadRate, loadFor = "HEADGATE_LOAD_URL", "HEADGATE_LOAD_RATE", "HEADGATE_LOAD_FOR"

// TestMain is the load generator if the environment says so.
func TestMain(m *testing.M) {
	if url := os.Getenv(loadURL); url != "" {
		rate := must(strconv.ParseFloat(os.Getenv(loadRate), 64))
		if err := json.NewEncoder(os.Stdout).Encode(generate(url, rate, must(time.ParseDuration(os.Getenv(loadFor))))); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// loaded is what a load generator has seen, without its first fifth.
type loaded struct {
	Sent, Good, Refused int
	For                 time.Duration
	P50, P99            time.Duration // of what was good
}

// generate sends requests at random instants, whether those before were answered or not.
func generate(url string, rate float64, length time.Duration) loaded {
	client := &http.Client{Timeout: callers, Transport: &http.Transport{MaxIdleConnsPerHost: 2000, MaxConnsPerHost: 4000}}
	var mu sync.Mutex
	var all sync.WaitGroup
	var took []time.Duration
	l := loaded{For: length * 4 / 5}
	began := time.Now()
	for at := time.Duration(0); at < length; at += time.Duration(rand.ExpFloat64() / rate * float64(time.Second)) {
		time.Sleep(time.Until(began.Add(at)))
		counts := at > length/5
		all.Go(func() {
			sent := time.Now()
			res, err := client.Get(url)
			status := 0
			if err == nil {
				status = res.StatusCode
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case !counts:
				return
			case status == http.StatusOK:
				l.Good++
				took = append(took, time.Since(sent))
			case status != 0:
				l.Refused++
			}
			l.Sent++
		})
	}
	all.Wait()
	slices.Sort(took)
	if len(took) > 0 {
		l.P50, l.P99 = took[len(took)/2], took[len(took)*99/100]
	}
	return l
}

// work is the server: who comes waits for a worker, and is served whether somebody waits for
// the answer or not.
func work() http.Handler {
	free := make(chan struct{}, workers)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		free <- struct{}{}
		defer func() { <-free }()
		time.Sleep(time.Duration(float64(takes) * math.Exp(0.3*rand.NormFloat64()-0.045)))
		_, _ = io.WriteString(w, "done")
	})
}

// TestOverHTTP is told how long by the flag -http, and compares what is done under ten times
// the load that the server can bear.
func TestOverHTTP(t *testing.T) {
	if *overHTTP == 0 {
		return
	}
	load := func(h http.Handler, rate float64) loaded {
		l := must((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))
		s := &http.Server{Handler: h, ReadHeaderTimeout: callers}
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		// What waits for a worker without a gate is more than anybody waits for.
		defer func() {
			_ = s.Close()
			if err := <-served; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), *overHTTP+30*time.Second)
		defer cancel()
		generator := exec.CommandContext(ctx, os.Args[0])
		generator.Env = append(os.Environ(), loadURL+"=http://"+l.Addr().String(), loadRate+"="+strconv.FormatFloat(rate, 'g', -1, 64), loadFor+"="+overHTTP.String())
		out, err := generator.Output()
		if err != nil {
			t.Fatal(err)
		}
		var seen loaded
		if err := json.Unmarshal(out, &seen); err != nil {
			t.Fatal(err)
		}
		return seen
	}
	through := func(g flow.Gate) http.Handler {
		return must(httplimit.New(nil, httplimit.Through(g, httplimit.Load{})))(work())
	}
	quiet := load(work(), 0.3*capacity)
	t.Logf("unloaded: p50 %v, p99 %v", quiet.P50, quiet.P99)
	for _, c := range []struct {
		name    string
		handler func() http.Handler
	}{
		{"Headgate, knee and queue", func() http.Handler {
			limit := adaptive.New("server", must(adaptive.NewKnee(adaptive.KneeConfig{})))
			return through(must(shed.New(limit, shed.Config{Name: "server"})))
		}},
		{"Headgate, knee", func() http.Handler {
			return through(adaptive.New("server", must(adaptive.NewKnee(adaptive.KneeConfig{}))))
		}},
		{"failsafe-go, limiter", func() http.Handler {
			l := adaptivelimiter.NewBuilder[any]().WithLimits(1, highest, initial).Build()
			return through(gate(func() (func(flow.Outcome), bool) { return failsafe(l) }))
		}},
		{"nothing", work},
	} {
		l := load(c.handler(), 10*capacity)
		t.Logf("%s: goodput %.2f, p50 %v, p99 %v (%.1f × unloaded), %d sent, %d refused", c.name,
			float64(l.Good)/l.For.Seconds()/capacity, l.P50.Round(time.Millisecond), l.P99.Round(time.Millisecond),
			l.P99.Seconds()/quiet.P99.Seconds(), l.Sent, l.Refused)
	}
}
