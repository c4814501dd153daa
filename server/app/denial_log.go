package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/headgate/headgate/telemetry/insight"
)

const (
	// denialLogEvery is how often denials are logged. Between two times there are fewer denials
	// than the recorder remembers.
	denialLogEvery = 500 * time.Millisecond
	denialLogMost  = insight.DefaultEvents
)

// denialLog logs the denials that the recorder remembers: for each key and rule at most one a
// second, with their number. It keeps nothing but the number of the last one that it has logged.
type denialLog struct {
	from   *insight.Recorder
	logger *slog.Logger
	after  int64
}

// run logs until ctx ends, and then what is left.
func (l *denialLog) run(ctx context.Context) {
	tick := time.NewTicker(denialLogEvery)
	defer tick.Stop()
	for {
		l.catchUp(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			l.catchUp(ctx)
			return
		}
	}
}

func (l *denialLog) catchUp(ctx context.Context) {
	list, lost := l.from.Denials(l.after, denialLogMost)
	if lost > 0 {
		l.logger.WarnContext(ctx, "denials were not logged: there were too many", slog.Int64("events", lost))
	}
	for i := range list {
		d := &list[i]
		l.after = d.Seq
		attributes := []slog.Attr{
			slog.String("rule", d.Rule), slog.String("limit", d.Limit), slog.String("key", d.Key.Text()),
			slog.Int64("times", d.Times), slog.Int64("cost", d.Cost), slog.Int64("remaining", d.Remaining), slog.Int64("retry_after_ms", d.RetryAfterMS),
			slog.String("door", d.Door), slog.String("source", d.Source), slog.Int64("version", d.Version), slog.Time("at", time.UnixMilli(d.At)),
		}
		if d.Tier != "" {
			attributes = append(attributes, slog.String("tier", d.Tier))
		}
		if d.Shadow {
			l.logger.LogAttrs(ctx, slog.LevelInfo, "would be denied, but its rule is in shadow", attributes...)
			continue
		}
		l.logger.LogAttrs(ctx, slog.LevelInfo, "denied", attributes...)
	}
}
