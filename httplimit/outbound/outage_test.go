package outbound

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/internal/race"
)

// The tests of this file run in virtual time.

// TestFleetNoticesTogether: the processes of a fleet notice after a few rejections each that a partner is down, and find
// out in turn when it is back, so that it hardly matters how many they are.
func TestFleetNoticesTogether(t *testing.T) {
	t.Parallel()
	for _, is := range []struct{ rate, processes int }{{9, 3}, {9, 8}, {45, 5}} {
		for _, pause := range []string{"", "1"} {
			if race.Enabled && (is.rate > 9 || pause == "1") {
				continue
			}
			bubbletest.Test(t, func(t *testing.T) {
				down := false
				p := &simulated{answer: func(_ *http.Request, res *http.Response) error {
					if down {
						res.StatusCode = http.StatusServiceUnavailable
						res.Header.Set("Retry-After", pause)
					}
					return nil
				}}
				c := newTraffic(t, is.rate, is.processes, newRemote(), p)
				for _, tr := range c.over {
					tr.config.MaxWait = 2 * time.Second
				}
				c.run(10 * time.Second)
				down = true
				p.attempts.Store(0)
				_, calls := c.run(time.Minute)
				if n := int(p.attempts.Load()); n > calls[""]/20+5*is.processes {
					t.Errorf("%+v, Retry-After: %q: %d attempts for %d calls in the outage", is, pause, n, calls[""])
				}
				down = false
				c.run(5 * time.Second)
				if good, calls := c.run(20 * time.Second); good[""] < calls[""]*95/100 {
					t.Errorf("%+v, Retry-After: %q: from 5 s after the outage on, %d of %d calls were answered", is, pause, good[""], calls[""])
				}
			})
		}
	}
}

// TestPartRejected: a partner that rejects a part at random gets nearly all calls, however many processes make them, and
// the store is not asked for each that is rejected.
func TestPartRejected(t *testing.T) {
	t.Parallel()
	const during = time.Minute
	for _, is := range []struct {
		rate, processes int
		rejects, least  float64 // shares
	}{{100, 1, 0.3, 0.7}, {100, 3, 0.5, 0.47}, {10, 3, 0.7, 0.2}, {100, 8, 0.7, 0.25}, {100, 20, 0.7, 0.25}} {
		if race.Enabled && is.processes > 3 {
			continue
		}
		for _, status := range []int{http.StatusServiceUnavailable, http.StatusTooManyRequests} {
			var asked int64
			share := middle(t, func(t *testing.T) float64 {
				shared := &counted{remote: newRemote()}
				c := newTraffic(t, is.rate, is.processes, shared, &simulated{answer: func(_ *http.Request, res *http.Response) error {
					if rand.Float64() < is.rejects {
						res.StatusCode = status
					}
					return nil
				}})
				good, calls := c.run(during)
				attempts := c.over[0].base.(*simulated).attempts.Load()
				asked = max(asked, shared.asked.Load()-attempts)
				return float64(good[""]) / float64(calls[""])
			})
			if most := int64(6 * float64(is.processes) * during.Seconds()); share < is.least || asked > most {
				t.Errorf("%+v, %d: %.3f of the calls are answered; the store is asked %d times, want at most %d", is, status, share, asked, most)
			}
		}
	}
}

// TestShortOutages: retries get over what lasts for a moment only.
func TestShortOutages(t *testing.T) {
	t.Parallel()
	for rate, processes := range map[int]int{10: 1, 30: 3, 100: 1} {
		bubbletest.Test(t, func(t *testing.T) {
			began := time.Now()
			c := newTraffic(t, rate, processes, newRemote(), &simulated{answer: func(_ *http.Request, res *http.Response) error {
				if time.Since(began)%(5*time.Second) < 300*time.Millisecond {
					res.StatusCode = http.StatusServiceUnavailable
				}
				return nil
			}})
			if good, calls := c.run(2 * time.Minute); good[""] < calls[""]*99/100 {
				t.Errorf("%d processes: %d of %d calls were answered", processes, good[""], calls[""])
			}
		})
	}
}

// TestOneProcessIsCutOff: a process that cannot reach the partner stops none of the others, and notices by itself when
// it can again.
func TestOneProcessIsCutOff(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		cut := true
		p := &simulated{answer: func(*http.Request, *http.Response) error { return nil }}
		c := newTraffic(t, 30, 3, newRemote(), p)
		c.over[0].base = roundTripper(func(r *http.Request) (*http.Response, error) {
			if cut {
				return nil, errors.New("no route to host")
			}
			return p.RoundTrip(r)
		})
		others := &traffic{t: t, rate: 20, paths: c.paths, over: c.over[1:]}
		lone := &traffic{t: t, rate: 10, paths: c.paths, over: c.over[:1]}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			lone.run(time.Minute)
			cut = false
			lone.run(5 * time.Second)
			if good, calls := lone.run(10 * time.Second); good[""] < calls[""] {
				t.Errorf("the process that was cut off has %d of %d calls answered", good[""], calls[""])
			}
		}()
		if good, calls := others.run(80 * time.Second); good[""] < calls[""] {
			t.Errorf("the others have %d of %d calls answered", good[""], calls[""])
		}
		<-ended
	})
}

// TestHealthyPartnerIsNotTold: processes ask the store once for a call to a partner that rejects none.
func TestHealthyPartnerIsNotTold(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		shared := &counted{remote: newRemote()}
		c := newTraffic(t, 100, 3, shared, &simulated{answer: func(*http.Request, *http.Response) error { return nil }})
		if _, calls := c.run(10 * time.Second); shared.asked.Load() != int64(calls[""]) {
			t.Errorf("the store is asked %d times for %d calls", shared.asked.Load(), calls[""])
		}
	})
}

// TestOutageIsNoTimeInAFleet: the time in which a partner has rejected all calls does not let the pace grow, whichever
// process has been refused last, and whichever finds out that it is over.
func TestOutageIsNoTimeInAFleet(t *testing.T) {
	t.Parallel()
	for range 5 {
		bubbletest.Test(t, func(t *testing.T) {
			down := false
			var back atomic.Pointer[time.Time] // when a call was accepted first
			c := newTraffic(t, 60, 3, newRemote(), &simulated{answer: func(_ *http.Request, res *http.Response) error {
				if down {
					res.StatusCode = http.StatusTooManyRequests
					res.Header.Set("Retry-After", "1")
					return nil
				}
				now := time.Now()
				back.CompareAndSwap(nil, &now)
				return nil
			}})
			for _, tr := range c.over {
				tr.config.MaxWait = 2 * time.Second
			}
			c.run(5 * time.Second)
			down = true
			c.run(30 * time.Second)
			down = false
			back.Store(nil)
			c.run(5*time.Second + paceEvery)
			for i, tr := range c.over {
				p := tr.partners.of("partner")
				p.mu.Lock()
				if before := back.Load().Sub(p.pace.From); p.pace.Base == 0 || !p.pace.Up || before > 100*time.Millisecond {
					t.Errorf("process %d counts from %v before the end of the outage on: %+v", i, before, p.pace)
				}
				p.mu.Unlock()
			}
		})
	}
}
