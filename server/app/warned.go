package app

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
)

// The shortest times between two lines with the same warning, and with the same error of a store.
const (
	warnedEvery = time.Minute
	failedEvery = 10 * time.Second
)

// warned tells the log of one thing that may happen at any rate, such as a kind of request that is
// seldom meant, or a failure: a line for each would fill the disk just when somebody needs to read the
// log. It is safe for concurrent use.
type warned struct {
	logger *slog.Logger
	every  time.Duration // the shortest time between two lines; zero means warnedEvery
	last   atomic.Int64  // when the last line was written, in nanoseconds since 1970
	count  atomic.Int64  // how often it has happened since then
}

// due counts that it has happened, and reports whether the next line may be written.
func (w *warned) due() bool {
	w.count.Add(1)
	now, last := time.Now().UnixNano(), w.last.Load()
	return now-last >= int64(cmp.Or(w.every, warnedEvery)) && w.last.CompareAndSwap(last, now)
}

// times says in a line how often it has happened since the line before.
func (w *warned) times(name string) slog.Attr { return slog.Int64(name, w.count.Swap(0)) }

// unsettled warns of plain checks that were charged by rules with charge_on or give_back_on. Nobody
// will say how such a request ends, so it stays charged in any case.
func (w *warned) unsettled(ask *decide.Ask, decisions []headgate.Decision) {
	set := ask.Policy.Set
	if ask.Reserve || set == nil || !set.Awaits(ask.Checks) || !headgate.NewVerdict(decisions).Allowed || !w.due() {
		return
	}
	var rules []string
	for i := range ask.Checks {
		if check := ask.Checks[i : i+1]; set.Awaits(check) && !slices.Contains(rules, check[0].Rule.Name()) {
			rules = append(rules, check[0].Rule.Name())
		}
	}
	w.logger.Warn("a plain check was charged by rules that charge by the outcome; reserve before the work, and settle with its status",
		slog.String("rules", strings.Join(rules, ",")))
}

// refusedReport warns of a refused request which looks as if Envoy reports units after their use.
func (w *warned) refusedReport(rule string) {
	if w.due() {
		w.logger.Warn("units that were reported after their use did not fit and were not counted; if a filter has apply_on_stream_done, start with --envoy-independent",
			slog.String("rule", rule))
	}
}
