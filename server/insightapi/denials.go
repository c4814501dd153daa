package insightapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/headgate/headgate/telemetry/insight"
)

// Denials is the answer to GET denials.
type Denials struct {
	// Denials are the denials in the order of time.
	Denials []insight.Denial `json:"denials"`
	// Next is the value of "after" for the next request.
	Next string `json:"next"`
	// Lost is how many denials after "after" are no longer remembered.
	Lost      int64      `json:"lost"`
	Instances []Instance `json:"instances,omitempty"`
}

func (h *Handler) denials(q *query) (any, *failure) {
	after, ok := readCursor(q.values.Get("after"))
	if !ok {
		return nil, wrong(http.StatusBadRequest, "after must be what an answer before had as next")
	}
	var key insight.Name
	if id := q.values.Get("key"); id != "" {
		var err error
		if key, err = insight.ParseID(id); err != nil {
			return nil, wrong(http.StatusBadRequest, "key must be the id of a key")
		}
	}
	from, known := after[h.o.Recorder.Node()]
	if !known {
		from = -1
	}
	var own Denials
	rule := q.values.Get("rule")
	if !known && (rule != "" || q.values.Get("key") != "") {
		// The last denials that fit, however old they are.
		own.Denials = h.o.Recorder.Search(func(r, k string) bool {
			return (rule == "" || r == rule) && (q.values.Get("key") == "" || k == key.Raw)
		}, q.limit)
		if last, _ := h.o.Recorder.Denials(-1, 1); len(last) == 1 {
			from = last[0].Seq
		}
	} else {
		own.Denials, own.Lost = h.o.Recorder.Denials(from, q.limit)
		from = max(from, 0)
		if n := len(own.Denials); n > 0 {
			from = own.Denials[n-1].Seq
		}
	}
	after[h.o.Recorder.Node()] = from
	parts, instances := ask[Denials](h, q)
	lists := [][]insight.Denial{own.Denials}
	for _, p := range parts {
		lists = append(lists, p.Denials)
		own.Lost += p.Lost
		theirs, _ := readCursor(p.Next)
		for node, seq := range theirs {
			if node != h.o.Recorder.Node() {
				after[node] = seq
			}
		}
	}
	own.Denials = insight.MergeDenials(lists...)
	own.keep(func(d *insight.Denial) bool {
		return (rule == "" || d.Rule == rule) && (q.values.Get("key") == "" || d.Key.Raw == key.Raw)
	})
	own.Next, own.Instances = writeCursor(after), instances
	return h.whole(q, own, func() any { return own })
}

func (d *Denials) keep(fits func(*insight.Denial) bool) {
	kept := make([]insight.Denial, 0, len(d.Denials))
	for i := range d.Denials {
		if fits(&d.Denials[i]) {
			kept = append(kept, d.Denials[i])
		}
	}
	d.Denials = kept
}

// Denials returns the answer to GET denials, for use within the program. after is the Next of an
// earlier answer, or "".
func (h *Handler) Denials(ctx context.Context, after string, limit int) Denials {
	answer, _ := h.denials(&query{ctx: ctx, path: "denials", limit: limit, values: url.Values{"after": {after}, "limit": {strconv.Itoa(limit)}}})
	denials, _ := answer.(Denials)
	return denials
}
