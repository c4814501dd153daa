package envoyrls

import (
	"net/http"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/wire"
)

// RuleEntry is the name of a first entry whose value names a direct rule; the
// entries that follow are its key.
const RuleEntry = decide.RuleEntry

// scratch is the memory for one request, which later requests reuse.
type scratch struct {
	request request
	ask     decide.Request
	parts   decide.Parts
	header  http.Header
	names   []string // of the answer's headers
	shown   []headgate.Decision
}

// Request implements [wire.Call].
func (q *scratch) Request() wire.Message { return &q.request }

// Reset implements [wire.Call]. It keeps the memory of the request.
func (q *scratch) Reset() {
	q.request.reset()
	q.ask.Reset()
	q.parts.Reset()
	clear(q.header)
	q.names = q.names[:0]
	clear(q.shown)
}

// ask fills in the parts from the descriptors of the request.
func (s *Service) ask(q *scratch) error {
	r := &q.request
	q.ask.Policy, q.ask.Parts = s.decider.Policy(), &q.parts
	q.parts.Domain, q.parts.Independent, q.parts.Reports, q.parts.Each = r.domain, s.options.Independent, &s.reports, true
	known := q.ask.Policy.Knows(r.domain)
	for i := range r.descriptors {
		d := &r.descriptors[i]
		part := decide.Part{Entries: d.entries}
		part.Op, part.Cost = d.operation(r.hits)
		q.parts.Each = q.parts.Each && d.hasHits
		if d.limited && known {
			rule, err := s.overrides.rule(&d.limit)
			if err != nil {
				return &decide.DescriptorError{Number: i + 1, Err: err}
			}
			part.Brought, part.Nothing = rule, rule == nil
		}
		q.parts.List = append(q.parts.List, part)
	}
	return nil
}

// operation returns the operation that a descriptor asks for, and its units. hits is the number of
// units that the request gives for all descriptors. Units beyond headgate.MaxCount are clamped to
// it, which no limit exceeds.
func (d *descriptor) operation(hits uint32) (headgate.Op, int64) {
	asked := uint64(max(1, hits))
	if d.hasHits {
		asked = d.hits
	}
	units := int64(min(asked, headgate.MaxCount))
	switch {
	case units == 0:
		return headgate.OpPeek, 1
	case d.negative:
		return headgate.OpRefund, units
	}
	return headgate.OpTake, units
}
