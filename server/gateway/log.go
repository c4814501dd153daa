package gateway

import (
	"log/slog"
	"time"
)

// log writes the line of a request to the access log. It leaves out the query and headers, which
// may contain secrets.
func (x *exchange) log(status int, sent, received int64, cut bool) {
	attrs := make([]slog.Attr, 0, 16)
	attrs = append(attrs,
		slog.String("method", x.r.Method), slog.String("host", x.r.Host), slog.String("path", x.r.URL.Path),
		slog.String("protocol", x.r.Proto), slog.String("route", x.name), slog.String("from", x.clientIP()),
		slog.Int("status", status), slog.String("verdict", outcomeNames[x.outcome]))
	switch {
	case x.outcome == listed:
		attrs = append(attrs, slog.String("list", x.ask.Denied.Name))
	case x.ask.Allowed != nil:
		attrs = append(attrs, slog.String("list", x.ask.Allowed.Name))
	case x.decided:
		if d := x.charge.Verdict.Deciding(); d != nil {
			attrs = append(attrs, slog.String("rule", d.Rule.Name()), slog.String("limit", d.Limit.String()), slog.Int64("remaining", d.Remaining))
		}
	}
	if x.target != nil {
		attrs = append(attrs, slog.String("upstream", x.target.name))
	}
	attrs = append(attrs, slog.Int64("received", received), slog.Int64("sent", sent), slog.Duration("took", time.Since(x.began)))
	if cut {
		attrs = append(attrs, slog.Bool("cut_off", true))
	}
	x.g.options.Logger.LogAttrs(x.r.Context(), slog.LevelInfo, "request", attrs...)
}
