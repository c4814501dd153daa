package outbound

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/permits"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store/memory"
)

// A second attempt that the budget or a limit does not admit costs nothing, and does not hold
// up the answer to the first one.
func TestHedgingCostsNothingInVain(t *testing.T) {
	t.Parallel()
	s := partnerServer(t, func(http.ResponseWriter, *http.Request) { time.Sleep(50 * time.Millisecond) })
	store := memory.New()
	rule := headgate.MustRule("partner", headgate.PerHour(100))
	c := mustNew(t, store, Config{Limits: []Limit{{Rules: []*headgate.Rule{rule}}}, Hedge: time.Millisecond, Budget: 1e-6, Floor: -1})
	if _, _, err := do(t, c, http.MethodGet, s.URL, nil); err != nil {
		t.Fatal(err)
	}
	d, err := store.Take(t.Context(), headgate.OpPeek, []headgate.Check{{Rule: rule, Key: strings.TrimPrefix(s.URL, "http://")}}, nil)
	if err != nil || d[0].Remaining != 99 {
		t.Errorf("%+v, %v", d, err)
	}
	slow := headgate.MustRule("slow", headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Period: time.Hour, Burst: 2})
	c = mustNew(t, store, Config{Limits: []Limit{{Rules: []*headgate.Rule{slow}}}, Hedge: time.Millisecond, MaxWait: 2 * time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour) // The second attempt would have time.
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		res, err := c.Do(r)
		if err == nil {
			err = res.Body.Close()
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the answer waits for a second attempt")
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// A partner that begins to refuse and never ends its answer does not hold up the retry.
func TestEndlessRefusal(t *testing.T) {
	t.Parallel()
	var attempts atomic.Int64
	s := partnerServer(t, func(w http.ResponseWriter, r *http.Request) {
		if attempts.Add(1) > 1 {
			_, _ = io.WriteString(w, "well")
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	c := mustNew(t, nil, Config{Backoff: time.Microsecond, Timeout: 20 * time.Second})
	if _, text, err := do(t, c, http.MethodGet, s.URL, nil); err != nil || text != "well" {
		t.Errorf("%q, %v", text, err)
	}
}

// A header of many parameters is not kept as a map of all of them.
func TestParametersAreBounded(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("daily;r=3;t=4")
	for i := range 10_000 {
		text.WriteString(";p" + strconv.Itoa(i) + "=1")
	}
	for name, of := range items([]string{text.String()}) {
		if name != "daily" || of["r"] != "3" || of["t"] != "4" || len(of) > maxWindows {
			t.Errorf("%s: r=%s, t=%s, and %d in all", name, of["r"], of["t"], len(of))
		}
	}
}

// An attempt that is not sent after all gives back what it was charged.
func TestUnsentIsNotCharged(t *testing.T) {
	t.Parallel()
	s := partnerServer(t, func(http.ResponseWriter, *http.Request) {})
	full, err := permits.New(permits.Config{Name: "partner", Limit: 1, Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := full.TryAcquire(t.Context(), flow.Request{}); err != nil {
		t.Fatal(err)
	}
	gated := headgate.MustRule("gated", headgate.PerHour(10))
	slow := headgate.MustRule("slow", headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Period: time.Hour, Burst: 10})
	for _, c := range []struct {
		rule   *headgate.Rule
		config Config
		calls  int
		left   int64
	}{
		{gated, Config{Gate: func(string) flow.Gate { return full }}, 5, 10},
		// The first call is sent. The second one waits, and its context ends.
		{slow, Config{MaxWait: 2 * time.Hour}, 2, 9},
	} {
		store := memory.New()
		c.config.Limits = []Limit{{Rules: []*headgate.Rule{c.rule}}}
		client := mustNew(t, store, c.config)
		for range c.calls {
			ctx, cancel := context.WithCancel(t.Context())
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			stop := time.AfterFunc(300*time.Millisecond, cancel).Stop
			if res, err := client.Do(r); err == nil {
				_ = res.Body.Close()
			}
			stop()
			cancel()
		}
		// What is given back as the context ends may be so a moment later.
		var d []headgate.Decision
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			var err error
			d, err = store.Take(t.Context(), headgate.OpPeek, []headgate.Check{{Rule: c.rule, Key: strings.TrimPrefix(s.URL, "http://")}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if d[0].Remaining == c.left {
				break
			}
		}
		if d[0].Remaining != c.left {
			t.Errorf("%s: %d are left after %d calls, want %d", c.rule.Name(), d[0].Remaining, c.calls, c.left)
		}
	}
}

// stuck is a store that does not answer who tells of a pause.
type stuck struct {
	headgate.Store
	told atomic.Int64
}

func (s *stuck) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if checks[0].Cost > 1 {
		<-ctx.Done()
		s.told.Add(1)
		return nil, ctx.Err()
	}
	return s.Store.Take(ctx, op, checks, dst)
}

// A store that hangs holds up no call beyond its context.
func TestStoreHangs(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		store := &stuck{Store: memory.New()}
		p := &simulated{answer: func(_ *http.Request, res *http.Response) error {
			res.StatusCode = http.StatusTooManyRequests
			res.Header.Set("Retry-After", "60")
			return nil
		}}
		tr, err := New(store, p, Config{})
		if err != nil {
			t.Fatal(err)
		}
		const patience = 100 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://partner/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if res, err := tr.RoundTrip(r); err == nil {
			_ = res.Body.Close()
		}
		if d := time.Since(began); d > patience {
			t.Errorf("a call that may take %v took %v", patience, d)
		}
		time.Sleep(tellWithin)
		if store.told.Load() != 1 {
			t.Error("the pause was not told")
		}
	})
}

// hanging is a store that takes long to say that it cannot answer.
type hanging struct{}

func (hanging) Take(context.Context, headgate.Op, []headgate.Check, []headgate.Decision) ([]headgate.Decision, error) {
	time.Sleep(300 * time.Millisecond)
	return nil, headgate.ErrUnavailable
}

// A call that asks the store in vain while a pause begins is not sent in the pause.
func TestPauseBeginsWhileStoreHangs(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		var sent []time.Time
		c := newTraffic(t, 1, 1, hanging{}, &simulated{answer: func(_ *http.Request, res *http.Response) error {
			if sent = append(sent, time.Now()); len(sent) == 1 {
				res.StatusCode = http.StatusTooManyRequests
				res.Header.Set("Retry-After", "1")
			}
			return nil
		}})
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { post(t, c.over[0], "") })
			time.Sleep(100 * time.Millisecond)
		}
		all.Wait()
		time.Sleep(tellWithin) // Whether it is back is found out without a call.
		if len(sent) != 2 || sent[1].Sub(sent[0]) < time.Second {
			t.Errorf("calls were sent at %v", sent)
		}
	})
}

// A store whose clock has stepped back does not stop paced calls until it has caught up.
func TestStoreClockStepsBack(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		shared := newRemote()
		d, err := shared.ReadDocument(t.Context(), paceName+" partner")
		if err != nil {
			t.Fatal(err)
		}
		ends := d.Now + headgate.Instant(time.Hour.Microseconds())
		value := `{"base":50,"known":true,"unit":1000000000,"ends":` + strconv.FormatInt(int64(ends), 10) + `}`
		if ok, err := shared.WriteDocument(t.Context(), d, []byte(value), time.Hour); !ok || err != nil {
			t.Fatal(ok, err)
		}
		c := newTraffic(t, 10, 1, shared, &simulated{answer: func(*http.Request, *http.Response) error { return nil }})
		if good, calls := c.run(5 * time.Second); good[""] != calls[""] {
			t.Errorf("%d of %d calls were answered", good[""], calls[""])
		}
		if p := c.over[0].partners.of("partner"); p.pace.Base != 50 || p.pace.From.After(time.Now()) {
			t.Errorf("the pace is %+v", p.pace)
		}
	})
}

// Who can choose among spellings of a host does not have a limit for each.
func TestSpellingsOfAHost(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"http://partner/": "partner", "HTTP://PartNer:80/": "partner", "https://partner.:443/": "partner", "https://partner:80/": "partner:80",
		"http://[::1]:80/": "[::1]", "http://[::1]:8080/": "[::1]:8080", "http://127.0.0.1:443/": "127.0.0.1:443",
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if got := hostOf(r); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}
