package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/memory"
)

// withoutStore is what decides while the store does not answer. The memory store
// always does, and has none.
type withoutStore struct {
	*fallback.Layer
	local     *memory.Store    // this server's shares
	otherwise headgate.OnError // of rules that do not say it
}

// newWithoutStore makes what decides while the store does not answer.
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
		Local: local, Default: otherwise, Learn: s.Learn, Changed: log.changed, Decided: (&sickPart{logger: s.Logger}).decided,
	})
	if err != nil {
		return nil, err
	}
	return &withoutStore{f, local, otherwise}, nil
}

// decisive is the store that requests are decided by.
func (a *App) decisive() headgate.Store {
	if a.layers == nil {
		return a.store.Store
	}
	return a.layers.store()
}

// parseOnError reads what is written in rules; "" is deny.
func parseOnError(text string) (headgate.OnError, error) {
	for _, o := range []headgate.OnError{headgate.OnErrorAllow, headgate.OnErrorDeny, headgate.OnErrorLocal} {
		if text == o.String() {
			return o, nil
		}
	}
	return headgate.OnErrorDeny, fmt.Errorf("%q is not one of allow, deny, local", text)
}

// modes counts what the rules of a policy do without the store. Rules that deny
// nobody have no say.
func modes(rules []policy.Rule, otherwise headgate.OnError) (allow, deny, local int) {
	for i := range rules {
		if rules[i].Mode != policy.ModeEnforce {
			continue
		}
		o := rules[i].OnError
		if o == headgate.OnErrorReturn {
			o = otherwise
		}
		switch o {
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

// detail is what /readyz says while the store does not answer, or is learnt anew;
// "" otherwise.
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

// storeLog tells the log what becomes of the store: a line for each change, not for
// each request.
type storeLog struct {
	logger    *slog.Logger
	otherwise headgate.OnError
	rules     func() []policy.Rule

	// What follows is of the outage that there is. Changes follow one another.
	began  time.Time
	before fallback.Stats
	told   time.Time // When it was last told that the store comes and goes.
	again  int64     // How often it has gone again since then.
	back   bool      // It was told that the store answers again.
}

// flapsEvery is how often it is told that the store comes and goes.
const flapsEvery = time.Minute

func (l *storeLog) changed(was, is fallback.Stats) {
	switch {
	case was.State == is.State:
	case is.State == fallback.Open && was.State == fallback.HalfOpen:
		l.again++
		if now := time.Now(); now.Sub(l.told) >= flapsEvery {
			l.logger.Error("the store has stopped answering again", slog.Any("error", is.Cause), slog.Int64("times", l.again))
			l.told, l.again = now, 0
		}
	case is.State == fallback.Open:
		l.began, l.before, l.told, l.again, l.back = time.Now(), is, time.Time{}, 0, false
		allow, deny, local := modes(l.rules(), l.otherwise)
		l.logger.Error("the store does not answer; rules do what on_store_error says", slog.Any("error", is.Cause),
			slog.Int("rules_that_allow", allow), slog.Int("rules_that_deny", deny), slog.Int("rules_that_count_locally", local), slog.Int64("nodes", is.Nodes))
	case is.State == fallback.HalfOpen && l.back:
	case is.State == fallback.HalfOpen:
		l.back = true
		l.logger.Info("the store answers again, and is asked about a growing part of the requests")
	default:
		l.logger.Info("the store decides again", slog.Duration("after", time.Since(l.began).Round(time.Millisecond)),
			slog.Int64("refused", is.Refused-l.before.Refused), slog.Int64("let_in", is.Open-l.before.Open), slog.Int64("counted_locally", is.Local-l.before.Local),
			slog.Int("debts", is.Debts))
	}
	switch {
	case was.Learning == is.Learning:
	case is.Learning:
		l.logger.Warn("the store has lost its data, or never had any; requests must fit this server's share of each limit as well, until it knows them again", slog.Int64("nodes", is.Nodes))
	default:
		l.logger.Info("the store's counters are enough again")
	}
	switch {
	case (was.NodesError == nil) == (is.NodesError == nil):
	case is.NodesError != nil && is.State == fallback.Closed:
		l.logger.Warn("the servers that share the store cannot be counted; shares are those of the last count", slog.Any("error", is.NodesError), slog.Int64("nodes", is.Nodes))
	case is.NodesError == nil:
		l.logger.Info("the servers that share the store are counted again", slog.Int64("nodes", is.Nodes))
	}
}

// refusals tells the log of requests that got no decision while the store was
// asked: now and then, since the log of a store that does not answer at all is
// another's.
type refusals struct {
	logger *slog.Logger
	status func() fallback.Stats

	mu    sync.Mutex // Guards what follows, which only failures touch.
	count int64
	last  time.Time
}

// refusalsEvery is how often they are told.
const refusalsEvery = 10 * time.Second

// hooks returns the hooks with the log added to them.
func (r *refusals) hooks(h headgate.Hooks) headgate.Hooks {
	failed := h.Failed
	h.Failed = func(ctx context.Context, op headgate.Op, checks []headgate.Check, err error, took time.Duration) {
		failed(ctx, op, checks, err, took)
		if ctx.Err() == nil && errors.Is(err, headgate.ErrUnavailable) && r.status().State == fallback.Closed {
			r.add(err)
		}
	}
	return h
}

func (r *refusals) add(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	if now := time.Now(); now.Sub(r.last) >= refusalsEvery {
		r.logger.Error("the store has not answered a request, which got no decision", slog.Any("error", err), slog.Int64("such_requests", r.count))
		r.count, r.last = 0, now
	}
}

// sickPart tells the log of a store that answers most requests, and some not, which are
// decided without it: a node of a cluster is away. Nothing else would, since the store as
// a whole is there.
type sickPart struct {
	logger *slog.Logger

	mu    sync.Mutex // Guards what follows, which only failures touch.
	since time.Time  // Of row.
	row   int64      // Failures within sickWithin of the first.
	count int64      // Since it was told.
	last  time.Time
}

const (
	// sickRow is how many requests within sickWithin are more than one that was late.
	sickRow    = 5
	sickWithin = 10 * time.Second
	// sickFor is how long they go on if it is a part: when all of the store goes, those that
	// are on their way end together, and then the breaker is open.
	sickFor = time.Second
	// sickEvery is how often it is told.
	sickEvery = time.Minute
)

func (p *sickPart) decided(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.since) > sickWithin {
		p.since, p.row = now, 0
	}
	p.row++
	p.count++
	if p.row >= sickRow && now.Sub(p.since) >= sickFor && now.Sub(p.last) >= sickEvery {
		p.logger.Warn("the store does not answer some of the requests; their rules do what on_store_error says", slog.Any("error", cause), slog.Int64("such_requests", p.count))
		p.count, p.last = 0, now
	}
}

// detail is what /readyz says beyond that the service is ready.
func (a *App) detail() string {
	var all []string
	for _, text := range []string{a.source.detail(), a.gateway.detail(), a.without.detail()} {
		if text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, "; ")
}
