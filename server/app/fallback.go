package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/insightapi"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/memory"
)

// withoutStore is the fallback, which decides while the store does not answer. The memory store
// always answers, so it has none.
type withoutStore struct {
	*fallback.Layer
	log       *storeLog
	local     *memory.Store    // this server's shares
	otherwise headgate.OnError // of rules that do not say it
}

// newWithoutStore makes the fallback.
func (a *App) newWithoutStore() (*withoutStore, error) {
	s := &a.settings
	if s.Store == memoryStore {
		return nil, nil
	}
	otherwise, _ := parseOnError(s.OnStoreError) // Checked before.
	var options []memory.Option
	if s.MemoryMiB > 0 {
		options = append(options, memory.MaxBytes(s.MemoryMiB<<20))
	}
	log := &storeLog{logger: s.Logger, otherwise: otherwise, rules: func() []policy.Rule { return a.Policy().Rules() }}
	local := memory.New(options...)
	f, err := fallback.New(a.store.Store, fallback.Options{
		Local: local, Default: otherwise, Learn: s.Learn, Changed: log.changed, Decided: (&sickPart{warned: warned{logger: s.Logger}}).decided,
	})
	if err != nil {
		return nil, err
	}
	return &withoutStore{f, log, local, otherwise}, nil
}

// decisive returns the store that requests ask: the outermost layer, or the store itself without
// layers.
func (a *App) decisive() headgate.Store {
	if a.layers == nil {
		return a.store.Store
	}
	return a.layers.store()
}

// parseOnError reads an on_store_error; "" is deny.
func parseOnError(text string) (headgate.OnError, error) {
	for _, o := range []headgate.OnError{headgate.OnErrorAllow, headgate.OnErrorDeny, headgate.OnErrorLocal} {
		if text == o.String() {
			return o, nil
		}
	}
	return headgate.OnErrorDeny, fmt.Errorf("%q is not one of allow, deny, local", text)
}

// onError returns what a rule does while the store does not answer.
func onError(r *policy.Rule, otherwise headgate.OnError) headgate.OnError {
	if r.OnError == headgate.OnErrorReturn {
		return otherwise
	}
	return r.OnError
}

// modes counts the rules of a policy by what they do while the store does not answer. Rules that
// never deny are not counted.
func modes(rules []policy.Rule, otherwise headgate.OnError) (allow, deny, local int) {
	for i := range rules {
		if rules[i].Mode != policy.ModeEnforce {
			continue
		}
		switch onError(&rules[i], otherwise) {
		case headgate.OnErrorAllow:
			allow++
		case headgate.OnErrorLocal:
			local++
		default:
			deny++
		}
	}
	return allow, deny, local
}

// detail is the text of /readyz while the store does not answer, or while its counters are learned
// again; "" otherwise.
func (w *withoutStore) detail() string {
	if w == nil {
		return ""
	}
	switch s := w.Stats(); {
	case s.State == fallback.Open:
		return "the store does not answer; rules do what on_store_error says"
	case s.Learning:
		return "the store has lost its data; this server's share of each limit is enforced as well"
	}
	return ""
}

// maxOutages is how many outages are remembered.
const maxOutages = 50

// outages are the last outages, the newest last. It is safe for concurrent use.
type outages struct {
	mu    sync.Mutex
	marks []insightapi.Mark
}

// begin and end record when the store stopped answering, and when it decided again.
func (o *outages) begin(at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.marks) == maxOutages {
		o.marks = slices.Delete(o.marks, 0, 1)
	}
	o.marks = append(o.marks, insightapi.Mark{At: at.UnixMilli(), Kind: "outage", Text: "the store did not answer"})
}

func (o *outages) end(at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.marks); n > 0 && o.marks[n-1].Until == 0 {
		o.marks[n-1].Until = at.UnixMilli()
	}
}

func (o *outages) last() []insightapi.Mark {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.marks)
}

// outage says what rules do while the store does not answer; nil while it answers.
func (a *App) outage() *insightapi.Outage {
	if a.without == nil {
		return nil
	}
	s := a.without.Stats()
	if s.State == fallback.Closed && !s.Learning {
		return nil
	}
	out := &insightapi.Outage{State: s.State.String(), Rules: []insightapi.RuleOutage{}}
	if s.State == fallback.Closed {
		out.State = "learning"
	}
	if marks := a.without.log.last(); len(marks) > 0 {
		out.Since = marks[len(marks)-1].At
	}
	if s.Cause != nil {
		out.Cause = errtext.Text(s.Cause)
	}
	rules := a.Policy().Rules()
	for i := range rules {
		if r := &rules[i]; r.Limits != nil || r.Tariff != nil {
			out.Rules = append(out.Rules, insightapi.RuleOutage{Rule: r.Name, Does: doesWithout(r, onError(r, a.without.otherwise), s.Nodes, s.Learning)})
		}
	}
	return out
}

// doesWithout says what a rule does while the store does not answer.
func doesWithout(r *policy.Rule, does headgate.OnError, nodes int64, learning bool) string {
	part := fmt.Sprintf("a %dth", nodes)
	switch nodes {
	case 0, 1:
		part = "all"
	case 2:
		part = "half"
	case 3:
		part = "a third"
	case 4:
		part = "a quarter"
	}
	switch {
	case learning:
		return "enforces " + part + " of its limit on this server as well"
	case r.Mode != policy.ModeEnforce:
		return "denies nobody, as its mode is " + r.Mode.String()
	case does == headgate.OnErrorAllow:
		return "is open: it lets all in, uncounted"
	case does == headgate.OnErrorLocal:
		return "enforces " + part + " of its limit on this server"
	}
	return "refuses all"
}

// storeLog logs each change in the state of the store, but not each request, and remembers outages.
type storeLog struct {
	outages
	logger    *slog.Logger
	otherwise headgate.OnError
	rules     func() []policy.Rule

	// The following fields describe the present outage. Changes come one after the other.
	began  time.Time
	before fallback.Stats
	logged time.Time // When it was last told that the store comes and goes.
	again  int64     // How often it has gone again since then.
	back   bool      // It was told that the store answers again.
}

// flapsEvery is the shortest time between two lines which say that the store comes and goes.
const flapsEvery = time.Minute

func (l *storeLog) changed(was, is fallback.Stats) {
	switch {
	case was.State == is.State:
	case is.State == fallback.Open && was.State == fallback.HalfOpen:
		l.again++
		if now := time.Now(); now.Sub(l.logged) >= flapsEvery {
			l.logger.Error("the store has stopped answering again", slog.Any("error", is.Cause), slog.Int64("times", l.again))
			l.logged, l.again = now, 0
		}
	case is.State == fallback.Open:
		l.began, l.before, l.logged, l.again, l.back = time.Now(), is, time.Time{}, 0, false
		l.begin(l.began)
		allow, deny, local := modes(l.rules(), l.otherwise)
		l.logger.Error("the store does not answer; rules do what on_store_error says", slog.Any("error", is.Cause),
			slog.Int("rules_that_allow", allow), slog.Int("rules_that_deny", deny), slog.Int("rules_that_count_locally", local), slog.Int64("nodes", is.Nodes))
	case is.State == fallback.HalfOpen && l.back:
	case is.State == fallback.HalfOpen:
		l.back = true
		l.logger.Info("the store answers again, and is asked about a growing part of the requests")
	default:
		l.end(time.Now())
		l.logger.Info("the store decides again", slog.Duration("after", time.Since(l.began).Round(time.Millisecond)),
			slog.Int64("refused", is.Refused-l.before.Refused), slog.Int64("let_in", is.Open-l.before.Open), slog.Int64("counted_locally", is.Local-l.before.Local),
			slog.Int("debts", is.Debts))
	}
	switch {
	case was.Learning == is.Learning:
	case is.Learning:
		l.logger.Warn("the store has lost its data, or never had any; requests must fit this server's share of each limit as well, until it knows them again", slog.Int64("nodes", is.Nodes))
	default:
		l.logger.Info("--learn has ended: the store's counters alone decide again")
	}
	switch {
	case (was.NodesError == nil) == (is.NodesError == nil):
	case is.NodesError != nil && is.State == fallback.Closed:
		l.logger.Warn("the servers that share the store cannot be counted; shares are those of the last count", slog.Any("error", is.NodesError), slog.Int64("nodes", is.Nodes))
	case is.NodesError == nil:
		l.logger.Info("the servers that share the store are counted again", slog.Int64("nodes", is.Nodes))
	}
}

// logRefusals returns hooks that log the requests which got no decision because of single failures
// of the store. storeLog is for stores that do not answer at all.
func (w *withoutStore) logRefusals() headgate.Hooks {
	refused := &warned{logger: w.log.logger, every: failedEvery}
	return headgate.Hooks{Failed: func(ctx context.Context, _ headgate.Op, _ []headgate.Check, err error, _ time.Duration) {
		if ctx.Err() == nil && errors.Is(err, headgate.ErrUnavailable) && w.Stats().State == fallback.Closed && refused.due() {
			refused.logger.ErrorContext(ctx, "the store has not answered a request, which got no decision", slog.Any("error", err), refused.times("such_requests"))
		}
	}}
}

// sickPart logs that a store answers most requests and fails on some, which are then decided
// without it, as when one node of a Cluster is away. No other line would say so, because the
// breaker stays closed.
type sickPart struct {
	warned

	mu    sync.Mutex // Guards what follows, which only failures touch.
	since time.Time  // Of row.
	row   int64      // Failures within sickWithin of the first.
}

const (
	// sickRow is how many failures within sickWithin are more than a few late calls.
	sickRow    = 5
	sickWithin = 10 * time.Second
	// sickFor is how long the failures must go on. When the whole store fails, the requests in
	// flight fail at the same moment, and then the breaker is open.
	sickFor = time.Second
)

func (p *sickPart) decided(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.since) > sickWithin {
		p.since, p.row = now, 0
	}
	if p.row++; p.row >= sickRow && now.Sub(p.since) >= sickFor && p.due() {
		p.logger.Warn("the store does not answer some of the requests; their rules do what on_store_error says", slog.Any("error", cause), p.times("such_requests"))
	}
}

// detail is the text of /readyz of a service that is ready.
func (a *App) detail() string {
	var all []string
	for _, text := range []string{a.settings.clockDetail(), a.source.detail(), a.gateway.detail(), a.without.detail()} {
		if text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, "; ")
}
