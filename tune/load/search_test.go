package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"
)

func expectations(t *testing.T, texts ...string) (all []Expectation) {
	t.Helper()
	for _, text := range texts {
		e, err := ParseExpectation(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// TestKnee: the knee of a service of known capacity is found within five percent, three
// times in a row, from below and from above.
func TestKnee(t *testing.T) {
	for _, tt := range []struct {
		workers int
		each    time.Duration
		from    float64
		want    float64
	}{
		{4, 20 * time.Millisecond, 10, 200},
		{4, 20 * time.Millisecond, 170, 200},
		{1, 10 * time.Millisecond, 1000, 100},
	} {
		bubble(t, workers(tt.workers, tt.each), Options{}, func(t *testing.T, c *Client) {
			f, err := c.Search(t.Context(), Search{
				From: tt.from, To: 100_000, Step: 10 * time.Second, Rest: time.Second, Precision: 0.02,
				Expect: expectations(t, "p95<200ms", "errors<1%"),
			})
			if err != nil {
				t.Fatal(err)
			}
			if !near(f.Sustainable, tt.want, 0.05) || f.Refused <= f.Sustainable || len(f.Because) == 0 {
				t.Errorf("found %g, and %g is refused (%q); want %g", f.Sustainable, f.Refused, f.Because, tt.want)
			}
		})
	}
}

// TestKneeOfErrors: a service that refuses what is too much is found out as well.
func TestKneeOfErrors(t *testing.T) {
	busy := make(chan struct{}, 3) // Nobody waits at it.
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case busy <- struct{}{}:
			time.Sleep(30 * time.Millisecond)
			<-busy
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	bubble(t, h, Options{}, func(t *testing.T, c *Client) {
		f, err := c.Search(t.Context(), Search{From: 10, To: 1000, Step: 10 * time.Second, Precision: 0.02, Expect: expectations(t, "p95<200ms", "errors<1%")})
		if err != nil {
			t.Fatal(err)
		}
		if !near(f.Sustainable, 100, 0.05) || !strings.Contains(strings.Join(f.Because, " "), "errors") {
			t.Errorf("found %g because of %q", f.Sustainable, f.Because)
		}
		for _, m := range f.Steps {
			if m.Rate > 150 && !m.Stopped {
				t.Errorf("%g a second went on to the end, though it was lost", m.Rate)
			}
		}
	})
}

// TestSearchEnds: whatever a service does, a search ends, with a rate that was borne at its
// last try or with none.
func TestSearchEnds(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for name, borne := range map[string]func(rate float64) bool{
		"never": func(float64) bool { return false }, "always": func(float64) bool { return true },
		"at random":  func(float64) bool { return random.IntN(2) == 0 },
		"below four": func(rate float64) bool { return rate < 4 },
		"noisy knee": func(rate float64) bool { return rate < 300 && random.IntN(20) > 0 },
	} {
		t.Run(name, func(t *testing.T) {
			for range 50 {
				s := &Search{From: 10, To: 5000, Step: 10 * time.Second, Precision: 0.02, Expect: expectations(t, "p95<200ms")}
				f := new(Found)
				last := make(map[float64]bool)
				err := f.look(t.Context(), s, func(_ context.Context, rate float64) (*Measurement, error) {
					m := &Measurement{Rate: rate, Valid: true, latency: histogram()}
					last[rate] = borne(rate)
					record(m.latency, 10*time.Millisecond)
					if !last[rate] {
						record(m.latency, time.Second)
					}
					return m, nil
				})
				if err == nil && f.Sustainable > 0 && !last[f.Sustainable] {
					t.Fatalf("found %g, which was not borne at its last try", f.Sustainable)
				}
				switch {
				case name == "never" && (err != nil || f.Sustainable != 0), name == "always" && (err != nil || f.Sustainable != 5000 || f.Refused != 0),
					name == "below four" && (err != nil || !near(f.Sustainable, 4, 0.05)):
					t.Fatalf("found %+v, %v", f, err)
				}
			}
		})
	}
}

// TestSlowSender: a sender that is late is not taken for a slow service.
func TestSlowSender(t *testing.T) {
	// At 20 a second it is late as well, but not so that it matters.
	late := func(rate float64) bool { return rate > 100 || rate == 20 }
	try := func(_ context.Context, rate float64) (*Measurement, error) {
		m := &Measurement{Rate: rate, Valid: !late(rate), latency: histogram()}
		record(m.latency, time.Millisecond)
		if rate > 100 {
			record(m.latency, time.Second)
		}
		return m, nil
	}
	s := &Search{From: 10, To: 1000, Step: time.Second, Precision: 0.02, Expect: expectations(t, "p95<200ms")}
	f := new(Found)
	if err := f.look(t.Context(), s, try); err != nil || !near(f.Sustainable, 100, 0.02) || f.Refused != 0 || !near(f.Late, 100, 0.02) {
		t.Errorf("found %g, refused %g, late at %g, %v", f.Sustainable, f.Refused, f.Late, err)
	}
	// A rate below that is not borne either says that it is the service.
	f = new(Found)
	err := f.look(t.Context(), s, func(ctx context.Context, rate float64) (*Measurement, error) {
		m, err := try(ctx, min(rate, 200))
		if m.Rate = rate; rate > 90 && rate < 140 {
			m.Valid = true
			record(m.latency, time.Second)
		}
		return m, err
	})
	if err != nil || !near(f.Sustainable, 90, 0.02) || f.Refused == 0 || f.Late != 0 {
		t.Errorf("found %g, refused %g, late at %g, %v", f.Sustainable, f.Refused, f.Late, err)
	}
}

// TestSlowSenderIsReported: the error is that of a slow sender, and what was found is there.
func TestSlowSenderIsReported(t *testing.T) {
	bubble(t, workers(1, 10*time.Millisecond), Options{nap: func(d time.Duration) { time.Sleep(d + 50*time.Millisecond) }}, func(t *testing.T, c *Client) {
		f, err := c.Search(t.Context(), Search{From: 10, To: 200, Step: 5 * time.Second, Precision: 0.1, Expect: expectations(t, "p95<80ms")})
		if !errors.Is(err, ErrSender) || f.Sustainable <= 0 || f.Late <= f.Sustainable || f.Refused != 0 {
			t.Errorf("found %g, refused %g, late at %g, %v", f.Sustainable, f.Refused, f.Late, err)
		}
	})
}

// TestRising: a latency that rises all the time is not borne for good, though it is still
// below the bound.
func TestRising(t *testing.T) {
	bubble(t, workers(2, 20*time.Millisecond), Options{}, func(t *testing.T, c *Client) {
		s := Search{Expect: expectations(t, "p95<500ms")}
		for rate, want := range map[float64]bool{98: false, 102: true} {
			m, err := c.Run(t.Context(), Shape{Rate: rate, For: 15 * time.Second}, s.Expect)
			if err != nil {
				t.Fatal(err)
			}
			if why := s.broken(m); m.Latency.P95 > 500 || len(why) > 0 != want {
				t.Errorf("%g a second: p95 is %g ms and rises by %g ms a minute: %q", rate, m.Latency.P95, m.Rise, why)
			}
		}
	})
}

func TestExpectations(t *testing.T) {
	m := &Measurement{latency: histogram(), ErrorShare: 0.02, Service: 1.4, Over: Series{Points: []Point{{Scheduled: 100, Limited: 1}}}}
	for i := range 1000 {
		record(m.latency, time.Duration(i+1)*time.Millisecond)
	}
	for text, holds := range map[string]bool{
		"p50<501ms": true, "p50<499ms": false, "p95 < 1s": true, "p99.9<999.9ms": true, "p999<900ms": false, "max<=1.1s": true, "max<1s": false,
		"errors<2%": false, "errors<=2%": true, "errors<2.5%": true, "limited<=1%": true, "limited<1%": false, "cpu<1.5": true, "cpu<1": false,
	} {
		if got := expectations(t, text)[0].Failed(m); got == "" != holds {
			t.Errorf("%s: %q", text, got)
		}
	}
	for _, text := range []string{"", "p95", "p95<", "p95<200", "p95>200ms", "p101<1s", "p0<1s", "errors<1", "errors<101%", "cpu<50%", "p95<-1s", "p95<1y", "latency<1s", "p95<200ms,p99<1s"} {
		if _, err := ParseExpectation(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	if got := expectations(t, "p95<1s")[0].Failed(&Measurement{latency: histogram()}); got == "" {
		t.Error("a bound on the latency holds though nothing was served")
	}
}

func FuzzParseExpectation(f *testing.F) {
	for _, text := range []string{"p95<200ms", "errors<1%", "cpu<1.5", "p99.99<=1h"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseExpectation(text)
		if err == nil && (e.String() != text || !(e.bound >= 0) || e.percent < 0 || e.percent > 100) {
			t.Errorf("%q is read as %+v", text, e)
		}
	})
}

func TestSearchMistakes(t *testing.T) {
	good := Search{From: 1, To: 10, Step: time.Second, Precision: 0.02, Expect: expectations(t, "p95<1s")}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for i, spoil := range []func(*Search){
		func(s *Search) { s.From = 0 }, func(s *Search) { s.To = 0.5 }, func(s *Search) { s.Step = time.Millisecond },
		func(s *Search) { s.Precision = 1 }, func(s *Search) { s.Expect = nil }, func(s *Search) { s.Expect = expectations(t, "errors<1%") },
	} {
		s := good
		if spoil(&s); s.Check() == nil {
			t.Errorf("mistake %d is taken: %s", i, fmt.Sprint(s))
		}
	}
}
