package insightapi

import (
	"strconv"
	"time"

	"github.com/headgate/headgate/server/history"
	"github.com/headgate/headgate/telemetry/insight"
)

// Past says that the minutes and sums of an answer are of longer ago than instances remember.
type Past struct {
	// Source is where they come from.
	Source string `json:"source"`
	// Error says why they cannot be had. The answer then has what the instances remember.
	Error string `json:"error,omitempty"`
	// Step is how long each of the minutes is, in seconds.
	Step int64 `json:"step"`
	// Until is the end of the range, in seconds since 1970.
	Until int64 `json:"until"`
	// Kept is since when all else is known: keys, limits, tiers, doors and lists. It is in milliseconds
	// since 1970.
	Kept int64 `json:"kept"`
}

// HasHistory reports whether ranges may be longer than what the instances remember.
func (h *Handler) HasHistory() bool { return h.o.History != nil }

// kept is since when the recorder knows minutes.
func (h *Handler) kept() time.Time {
	oldest, since := h.o.Recorder.Now().Add(time.Minute-insight.Kept), h.o.Recorder.Since()
	if since.After(oldest) {
		oldest = since
	}
	return oldest.Truncate(time.Minute)
}

// begin is when the range begins.
func (h *Handler) begin(q *query) time.Time {
	if q.of.Until.IsZero() {
		return h.o.Recorder.Now().Truncate(time.Minute).Add(time.Minute - q.of.Of)
	}
	return q.of.Until.Add(-q.of.Of)
}

// beyond reports whether the range begins before what the recorder knows, and there is a history that
// may be asked.
func (h *Handler) beyond(q *query) bool {
	return h.o.History != nil && !q.live && h.begin(q).Before(h.kept())
}

// pin sets the end of a range that the history is asked about, a whole minute, so that all instances,
// whose clocks differ, have the same steps.
func (h *Handler) pin(q *query) {
	if !h.beyond(q) {
		return
	}
	until := q.of.Until.Add(time.Minute - 1)
	if q.of.Until.IsZero() {
		until = h.o.Recorder.Now()
	}
	q.of.Until = until.Truncate(time.Minute)
	q.values.Set("until", strconv.FormatInt(q.of.Until.Unix(), 10))
}

// past asks the history, if the range begins before what the recorder knows, and extends the answer.
// A history of all instances extends it when the returned function is called, after their answers were
// merged; one of this instance does at once.
func (h *Handler) past(q *query, rule string, extend func(insight.Past)) (*Past, func()) {
	later := func() {}
	if !h.beyond(q) || q.local && h.o.History.Whole() {
		return nil, later
	}
	from := h.begin(q)
	step := history.StepOf(from, q.of.Until, h.o.Recorder.Now().Add(-insight.Kept-time.Minute))
	from = q.of.Until.Add(-(q.of.Of + step - 1).Truncate(step))
	told := &Past{Source: h.o.History.Source(), Step: int64(step / time.Second), Until: q.of.Until.Unix(), Kept: h.kept().UnixMilli()}
	past, err := h.o.History.Read(q.ctx, history.Question{Rule: rule, From: from, Until: q.of.Until, Step: step})
	switch {
	case err != nil:
		told.Error = err.Error()
	case h.o.History.Whole():
		later = func() { extend(past) }
	default:
		extend(past)
	}
	return told, later
}
