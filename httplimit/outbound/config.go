package outbound

import (
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/retry"
)

// Limit is limits of our own, which all processes share that have the same store.
type Limit struct {
	// Key is what a request counts under: an account or a route, for instance. "" means
	// that the limit does not bind the request. It stands in the store as it is: hash what
	// is secret. Nil means the name of the partner.
	Key func(r *http.Request) string
	// Rules are the limits. Each rule counts by itself.
	Rules []*headgate.Rule
}

// Config says how a [Transport] works. The zero value of each field is its default.
type Config struct {
	// Limits are limits of our own.
	Limits []Limit
	// Partner returns the name of whom a request goes to. What is learnt holds for that
	// name. Nil means the host of the URL, with its port unless that is the scheme's.
	Partner func(r *http.Request) string
	// MaxWait is how long a call may wait in all, before it is sent and between tries. Zero
	// means 30 s; negative means not at all.
	MaxWait time.Duration
	// MaxPause bounds what a partner can ask for with Retry-After, be it this process or another
	// one that is asked, and how far calls are spread when little of a limit is left: 1 s to
	// 15 min. Zero means 5 min.
	MaxPause time.Duration

	// Tries is how many attempts there may be for a call, 1 to 10. Zero means 3.
	Tries int
	// Backoff is the longest wait before the first retry; it doubles for each further one,
	// up to MaxBackoff. The wait is a random part of it. Zero means 100 ms and 10 s.
	Backoff, MaxBackoff time.Duration
	// Budget is how many retries there may be as a share of calls, above 0 to 1, for each
	// partner. Zero means 0.1. Floor is how many there may be besides. Zero means 10;
	// negative means none.
	Budget float64
	Floor  int
	// Hedge, if it is not zero, is after which time a request with no body that can be
	// retried is sent a second time while the first attempt goes on. The budget pays for it.
	Hedge time.Duration
	// TryTimeout bounds one attempt, its body included, and Timeout the whole call with all
	// its waits. Zero means no bound but the context's.
	TryTimeout, Timeout time.Duration

	// Gate makes the gate that bounds how much is in progress with a partner, such as one
	// of package adaptive. Nil means none.
	Gate func(partner string) flow.Gate
	// FailClosed has calls fail if the store cannot decide on the Limits. Otherwise they are made,
	// no faster in each process than the Limits admit, and none waits for a store that hangs.
	FailClosed bool
	// Hooks are told what happens.
	Hooks Hooks
}

// Hooks are told what a [Transport] does. Any of them may be nil. They must be
// quick. Those of one call run at the same time if it is hedged, and that of an attempt which
// has lost may run after the call has returned.
type Hooks struct {
	// Waited is called after a call has waited, with how long.
	Waited func(r *http.Request, d time.Duration)
	// Paused is called when an answer has asked for a pause.
	Paused func(partner string, d time.Duration)
	// Retried is called before a request is sent again, with which try that is: 2 and more.
	Retried func(r *http.Request, try int)
	// Failed is called for each error of the store. That may be after the call has returned.
	Failed func(r *http.Request, err error)
}

// The bounds of a [Config].
const (
	MaxTries    = 10
	LongestWait = 15 * time.Minute
)

func (c *Config) fill() error {
	var problems headgate.Problems
	check := func(ok bool, field, format string, args ...any) {
		if !ok {
			problems.Add(field, format, args...)
		}
	}
	set(&c.MaxWait, 30*time.Second)
	c.MaxWait = max(c.MaxWait, 0)
	set(&c.MaxPause, 5*time.Minute)
	check(c.MaxPause >= time.Second && c.MaxPause <= LongestWait, "MaxPause", "MaxPause is %v, must be 1s to %v", c.MaxPause, LongestWait)
	set(&c.Tries, 3)
	check(c.Tries >= 1 && c.Tries <= MaxTries, "Tries", "Tries is %d, must be 1 to %d", c.Tries, MaxTries)
	set(&c.Backoff, 100*time.Millisecond)
	set(&c.MaxBackoff, max(10*time.Second, c.Backoff))
	check(c.Backoff > 0 && c.Backoff <= c.MaxBackoff, "Backoff", "Backoff is %v, must be more than 0 and at most MaxBackoff, %v", c.Backoff, c.MaxBackoff)
	set(&c.Budget, retry.DefaultShare)
	check(c.Budget > 0 && c.Budget <= 1, "Budget", "Budget is %v, must be above 0 and at most 1", c.Budget)
	set(&c.Floor, retry.DefaultFloor)
	c.Floor = max(c.Floor, 0)
	for _, d := range []struct {
		name string
		is   time.Duration
	}{{"Hedge", c.Hedge}, {"TryTimeout", c.TryTimeout}, {"Timeout", c.Timeout}} {
		check(d.is >= 0, d.name, "%s is %v, must not be negative", d.name, d.is)
	}
	check(c.Timeout == 0 || c.TryTimeout <= c.Timeout, "TryTimeout", "TryTimeout is %v, must be at most Timeout, %v", c.TryTimeout, c.Timeout)
	names := map[string]bool{pauseName: true, paceName: true, outageName: true}
	for i, l := range c.Limits {
		check(len(l.Rules) > 0, "Limits", "limit %d has no rule", i+1)
		for _, r := range l.Rules {
			if r == nil {
				problems.Add("Limits", "limit %d has a nil rule; make rules with headgate.NewRule", i+1)
				continue
			}
			check(!names[r.Name()], "Limits", "limit %d: the rule %q is there already; give each rule its own name", i+1, r.Name())
			names[r.Name()] = true
		}
	}
	// Beside them, a call asks for the pause and the pace.
	check(len(names)-1 <= headgate.MaxChecks, "Limits", "there are %d rules, must be at most %d", len(names)-3, headgate.MaxChecks-2)
	if c.Partner == nil {
		c.Partner = hostOf
	}
	return problems.Err("outbound")
}

// hostOf is the host of a request's URL. It is the same however the URL spells it: who can choose among
// spellings must not have a limit for each.
func hostOf(r *http.Request) string {
	host := strings.ToLower(r.URL.Host)
	switch r.URL.Scheme {
	case "http":
		host = strings.TrimSuffix(host, ":80")
	case "https":
		host = strings.TrimSuffix(host, ":443")
	}
	return strings.TrimSuffix(host, ".")
}

// set gives v a value if it has none.
func set[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}
