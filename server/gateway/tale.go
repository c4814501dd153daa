package gateway

import (
	"context"
	"log/slog"
	"time"

	"github.com/headgate/headgate/flow"
)

// tale logs when an upstream begins to shed requests, how that continues, and when it is over. A
// line for each request would hide all others.
type tale struct {
	upstream string
	of       *load
	logger   *slog.Logger

	told  [flow.Classes][flow.Reasons]uint64 // the counts when the last line was logged
	seen  uint64                             // the number of shed requests at the last look
	since time.Time                          // when shedding began; zero if nothing is shed
	last  time.Time                          // when a request was last seen to be shed
	line  time.Time                          // when the last line was logged
	total uint64
}

const (
	// look is how often the tale looks, again how often it tells of what goes on, and calm
	// for how long nothing must be shed for it to be over.
	lookEvery = time.Second
	again     = 30 * time.Second
	calm      = 10 * time.Second
)

// run looks until ctx ends.
func (t *tale) run(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			t.look(ctx, now)
		}
	}
}

// look logs what has happened since the last look.
func (t *tale) look(ctx context.Context, now time.Time) {
	shed := t.of.watched.Shed()
	more := count(shed) - count(t.told)
	if all := count(shed); all > t.seen {
		t.last, t.seen = now, all
	}
	switch {
	case more > 0 && t.since.IsZero():
		t.since, t.total = now, 0
	case t.since.IsZero():
		return
	case now.Sub(t.last) >= calm:
		t.logger.LogAttrs(ctx, slog.LevelInfo, "an upstream takes all requests again", t.mode(),
			slog.String("upstream", t.upstream), slog.Uint64("shed", t.total+more), slog.Duration("within", t.last.Sub(t.since).Round(time.Second)))
		t.told, t.since, t.line = shed, time.Time{}, time.Time{}
		return
	case now.Sub(t.line) < again:
		return
	}
	if more == 0 {
		return
	}
	s, base := t.of.queue.Stats(), t.of.limit.Base()
	attrs := []slog.Attr{
		t.mode(), slog.String("upstream", t.upstream), slog.Uint64("shed", more),
		slog.Int64("limit", t.of.limit.Limit()), slog.Int64("in_progress", s.InUse), slog.Int64("waiting", s.Waiting),
		slog.Duration("unloaded_time", base.Round(10*time.Microsecond)), slog.Float64("pressure", t.of.queue.Pressure()),
	}
	for rank := range shed {
		for reason := range shed[rank] {
			if n := shed[rank][reason] - t.told[rank][reason]; n > 0 {
				attrs = append(attrs, slog.Uint64(flow.ClassOfRank(rank).String()+"."+flow.Reason(reason).String(), n))
			}
		}
	}
	t.logger.LogAttrs(ctx, slog.LevelWarn, "an upstream has as much to do as it can do in time; requests are shed", attrs...)
	t.told, t.line, t.total = shed, now, t.total+more
}

// mode says whether requests were really shed, or only would have been without the shadow.
func (t *tale) mode() slog.Attr {
	if t.of.settings.Shadow {
		return slog.String("mode", "shadow")
	}
	return slog.String("mode", "enforce")
}

func count(all [flow.Classes][flow.Reasons]uint64) (n uint64) {
	for rank := range all {
		for _, one := range all[rank] {
			n += one
		}
	}
	return n
}
