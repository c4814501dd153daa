package consume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/bubbletest"
)

// message is an item whose message is a text.
type message struct {
	Item[string]
	ctx    context.Context
	fates  []Fate
	letter Letter
}

// TestEngine takes a message through every way that it can go, and compares what is called and
// counted.
func TestEngine(t *testing.T) {
	bad, long := errors.New("bad"), errors.New(strings.Repeat("ä", MaxReason))
	tiers := []Tier{{"t1", time.Minute}, {"t2", time.Hour}}
	for name, test := range map[string]struct {
		change func(c *Config[string], m *message)
		// handled are the results of the handler, and published those of publishing the letter. Further
		// calls succeed.
		handled, published []error
		stop               bool // the handler is told to stop
		fate               []Fate
		events             string
		counts             Counts
	}{
		"done": {fate: []Fate{Done}, events: "handled", counts: Counts{Handled: 1}},
		"in place": {
			change:  func(c *Config[string], _ *message) { c.InPlace = 2 },
			handled: []error{bad, Later(bad, time.Hour)},
			fate:    []Fate{Done}, events: "handled retried handled retried+1h handled", counts: Counts{Handled: 3, Failed: 2, Retried: 2},
		},
		"first tier after that in place": {
			change:  func(c *Config[string], _ *message) { c.InPlace, c.Tiers = 1, tiers },
			handled: []error{bad, bad},
			fate:    []Fate{Done}, events: "handled retried handled t1#1/2 retried:t1", counts: Counts{Handled: 2, Failed: 2, Retried: 1, Delayed: 1},
		},
		"second tier": {
			change:  func(c *Config[string], m *message) { c.InPlace, c.Tiers, m.Tier = 1, tiers, 1 },
			handled: []error{bad},
			fate:    []Fate{Done}, events: "handled t2#2/1 retried:t2", counts: Counts{Handled: 1, Failed: 1, Delayed: 1},
		},
		"after the last tier": {
			change:  func(c *Config[string], m *message) { c.Tiers, m.Tier = tiers, 2 },
			handled: []error{long},
			fate:    []Fate{Done}, events: "handled dead#0/1 dead", counts: Counts{Handled: 1, Failed: 1, DeadLettered: 1},
		},
		"permanent": {
			change:  func(c *Config[string], _ *message) { c.InPlace, c.Tiers = 5, tiers },
			handled: []error{Permanent(bad)},
			fate:    []Fate{Done}, events: "handled dead#0/1 dead", counts: Counts{Handled: 1, Failed: 1, DeadLettered: 1},
		},
		"letters that fail": {
			handled: []error{bad}, published: []error{bad, bad},
			fate: []Fate{Done}, events: "handled dead#0/1 error error dead", counts: Counts{Handled: 1, Failed: 1, DeadLettered: 1},
		},
		"block": {
			change:  func(c *Config[string], _ *message) { c.Exhausted = Block },
			handled: []error{bad, Permanent(bad)},
			fate:    []Fate{Done}, events: "handled retried handled retried handled", counts: Counts{Handled: 3, Failed: 2, Retried: 2},
		},
		"discard": {
			change:  func(c *Config[string], _ *message) { c.Exhausted = Discard },
			handled: []error{bad},
			fate:    []Fate{Done}, events: "handled discarded", counts: Counts{Handled: 1, Failed: 1, Discarded: 1},
		},
		"reject": {
			change:  func(c *Config[string], _ *message) { c.Exhausted = Reject },
			handled: []error{bad},
			fate:    []Fate{Rejected}, events: "handled discarded", counts: Counts{Handled: 1, Failed: 1, Rejected: 1},
		},
		"told to stop": {
			handled: []error{bad}, stop: true,
			fate: []Fate{Returned}, events: "handled", counts: Counts{Handled: 1, Failed: 1},
		},
		"refused by the gate": {
			change: func(c *Config[string], _ *message) {
				c.Gate = &gate{asked: make(map[string]int), answers: map[string]func(int) error{"m": func(n int) error {
					return []error{&flow.Rejection{RetryAfter: time.Hour}, bad, nil}[n]
				}}}
			},
			fate: []Fate{Done}, events: "error handled", counts: Counts{Handled: 1, Refused: 2},
		},
		"never admitted": {
			change: func(c *Config[string], _ *message) {
				c.Gate = &gate{asked: make(map[string]int), answers: map[string]func(int) error{"m": func(int) error {
					return &flow.Rejection{RetryAfter: headgate.Never}
				}}}
			},
			fate: []Fate{Done}, events: "dead#0/1 dead", counts: Counts{DeadLettered: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubbletest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				var events []string
				event := func(format string, args ...any) { events = append(events, fmt.Sprintf(format, args...)) }
				c := Config[string]{
					Broker: "broker", DeadLetter: "dead", Request: func(m string) flow.Request { return flow.Request{Key: m} },
					Hooks: Hooks[string]{
						Error:   func(error) { event("error") },
						Handled: func(string, error, time.Duration) { event("handled") },
						Retried: func(_, tier string, delay time.Duration, _ error) {
							switch {
							case tier != "":
								event("retried:%s", tier)
							case delay >= time.Hour:
								event("retried+1h")
							default:
								event("retried")
							}
						},
						DeadLettered: func(string, error) { event("dead") },
						Discarded:    func(string, error) { event("discarded") },
					},
				}
				c.Handle = func(context.Context, string) (err error) {
					if test.stop {
						stop()
					}
					if len(test.handled) > 0 {
						err, test.handled = test.handled[0], test.handled[1:]
					}
					return err
				}
				m := &message{Item: Item[string]{Message: "m"}, ctx: ctx}
				if test.change != nil {
					test.change(&c, m)
				}
				c.Complete()
				e := New(c, Source[*message]{
					Context: func(m *message) context.Context { return m.ctx },
					Wants:   func(m *message) bool { return len(m.fates) == 0 },
					Begin:   func(*message) {}, End: func(*message) {},
					Settle: func(m *message, fate Fate) { m.fates = append(m.fates, fate) },
					Letter: func(m *message, l Letter) func(context.Context) error {
						m.letter = l
						event("%s#%d/%d", l.To, l.Tier, l.Attempts)
						return func(context.Context) (err error) {
							if len(test.published) > 0 {
								err, test.published = test.published[0], test.published[1:]
							}
							return err
						}
					},
				})
				e.Lock()
				e.Submit(m)
				e.Unlock()
				time.Sleep(24 * time.Hour)
				e.Lock()
				defer e.Unlock()
				if !slices.Equal(m.fates, test.fate) || strings.Join(events, " ") != test.events || e.Counts != test.counts || e.Running != 0 {
					t.Errorf("fates %v, events %v, %+v, %d run", m.fates, events, e.Counts, e.Running)
				}
				if l := &m.letter; len(l.Reason) > MaxReason || !utf8.ValidString(l.Reason) || l.To != "" && l.Reason == "" {
					t.Errorf("the reason of the letter is %q", l.Reason)
				}
			})
		})
	}
}

// TestReturned: an item that nobody will want at its next try is returned at once.
func TestReturned(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		over := false
		var c Config[string]
		c.InPlace, c.Handle = 1, func(context.Context, string) error { over = true; return errors.New("bad") }
		c.Complete()
		e := New(c, Source[*message]{
			Context: func(*message) context.Context { return t.Context() },
			Wants:   func(*message) bool { return !over },
			Begin:   func(*message) {}, End: func(*message) {},
			Settle: func(m *message, fate Fate) { m.fates = append(m.fates, fate) },
		})
		m := &message{}
		e.Lock()
		e.Submit(m)
		e.Unlock()
		time.Sleep(time.Nanosecond)
		e.Lock()
		defer e.Unlock()
		if !slices.Equal(m.fates, []Fate{Returned}) {
			t.Errorf("fates %v", m.fates)
		}
	})
}

// TestLoad: the times of what runs and of what waits for a worker are measured.
func TestLoad(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		var c Config[string]
		c.Workers, c.Handle = 2, func(context.Context, string) error { time.Sleep(time.Minute); return nil }
		c.Complete()
		e := New(c, Source[*message]{
			Context: func(*message) context.Context { return t.Context() },
			Wants:   func(*message) bool { return true },
			Begin:   func(*message) {}, End: func(*message) {}, Settle: func(*message, Fate) {},
		})
		e.Lock()
		for range 6 { // two run for a minute while four wait, then two while two wait, then two
			e.Submit(&message{})
		}
		e.Unlock()
		time.Sleep(time.Hour)
		e.Lock()
		defer e.Unlock()
		if busy, waiting := e.Load(); busy != 6*time.Minute || waiting != 6*time.Minute {
			t.Errorf("busy for %v, waiting for %v, want 6m and 6m", busy, waiting)
		}
		if busy, waiting := e.Load(); busy != 0 || waiting != 0 {
			t.Errorf("busy for %v, waiting for %v after that", busy, waiting)
		}
	})
}

// TestAgain: what is tried again in place does not go behind all that waits; what blocks does.
func TestAgain(t *testing.T) {
	for name, test := range map[string]struct {
		change func(c *Config[string])
		want   string
	}{
		"in place": {func(c *Config[string]) { c.InPlace = 1 }, "0 1 0 2 3 4 5 6 7 8 9"},
		"block":    {func(c *Config[string]) { c.Exhausted = Block }, "0 1 2 3 4 5 6 7 8 9 0"},
	} {
		t.Run(name, func(t *testing.T) {
			bubbletest.Test(t, func(t *testing.T) {
				var ran []string
				var mu sync.Mutex // guards ran
				c := Config[string]{
					Broker: "broker", Workers: 1, DeadLetter: "dead", Backoff: time.Second, MaxBackoff: time.Second,
					Handle: func(_ context.Context, m string) error {
						time.Sleep(time.Second)
						mu.Lock()
						defer mu.Unlock()
						if ran = append(ran, m); m == "0" && len(ran) == 1 {
							return errors.New("bad")
						}
						return nil
					},
				}
				test.change(&c)
				c.Complete()
				e := New(c, Source[*message]{
					Context: func(*message) context.Context { return t.Context() },
					Wants:   func(*message) bool { return true },
					Begin:   func(*message) {}, End: func(*message) {}, Settle: func(*message, Fate) {},
				})
				e.Lock()
				for n := range 10 {
					e.Submit(&message{Item: Item[string]{Message: fmt.Sprint(n)}})
				}
				e.Unlock()
				time.Sleep(time.Minute)
				mu.Lock()
				defer mu.Unlock()
				if got := strings.Join(ran, " "); got != test.want {
					t.Errorf("handled %s, want %s", got, test.want)
				}
			})
		})
	}
}
