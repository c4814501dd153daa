package client

import (
	"context"
	"fmt"
	"unicode/utf8"

	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
)

// Check takes units by the rules of the server's policy: all or none. A denial is
// no error. Errors are
//   - a [*headgate.InvalidError], if the request is at fault, by text that is not
//     UTF-8 for instance: nothing was charged;
//   - one that wraps [headgate.ErrConflict], if the request's id belongs to another;
//   - one that wraps [headgate.ErrUnavailable], if there was no answer: whether the
//     request was charged is not known.
//
// Of each, status.FromError finds what the server said.
func (c *Client) Check(ctx context.Context, r *headgatev1.CheckRequest) (*headgatev1.Verdict, error) {
	if err := valid(r, r.GetId()); err != nil {
		return nil, err
	}
	v, err := c.checks.do(ctx, r, func(ctx context.Context, r *headgatev1.CheckRequest) (*headgatev1.Verdict, error) {
		return c.api.Check(ctx, r)
	})
	if err != nil {
		return nil, failed("check", err)
	}
	return v, nil
}

// MaxBatch is how many requests [Client.CheckBatch] sends in one call.
const MaxBatch = 256

// maxBatchWeight is about how many bytes they may have: half of what servers take.
const maxBatchWeight = 512 << 10

// together is how many of the requests go in one call: one at least.
func together(requests []*headgatev1.CheckRequest) (n int) {
	for weight := 0; n < min(MaxBatch, len(requests)); n++ {
		if weight += (checkStreams{}).weight(requests[n]); weight > maxBatchWeight {
			break
		}
	}
	return max(n, 1)
}

// CheckBatch decides requests that have nothing to do with one another, each by
// itself, in no particular order. The results stand as the requests do; each has a
// verdict or an error. More than MaxBatch, or than half a MiB, are sent in several
// calls, one after the other; if one of those fails, so does all of it, and what the
// ones before it have charged stays charged.
func (c *Client) CheckBatch(ctx context.Context, requests []*headgatev1.CheckRequest) ([]*headgatev1.CheckResult, error) {
	for i, r := range requests {
		if err := valid(r, r.GetId()); err != nil {
			return nil, fmt.Errorf("request %d: %w", i+1, err)
		}
	}
	results := make([]*headgatev1.CheckResult, 0, len(requests))
	for len(requests) > 0 {
		some := requests[:together(requests)]
		requests = requests[len(some):]
		answer, err := ask(ctx, c, "check batch", &headgatev1.CheckBatchRequest{Requests: some}, c.api.CheckBatch)
		if err != nil {
			return nil, err
		}
		if n := len(answer.GetResults()); n != len(some) {
			return nil, failed("check batch", fmt.Errorf("the server gave %d results for %d requests", n, len(some)))
		}
		results = append(results, answer.GetResults()...)
	}
	return results, nil
}

// Peek says what Check would say, and charges nothing.
func (c *Client) Peek(ctx context.Context, r *headgatev1.PeekRequest) (*headgatev1.Verdict, error) {
	if err := valid(r, ""); err != nil {
		return nil, err
	}
	return ask(ctx, c, "peek", r, c.api.Peek)
}

// Refund gives a cost back.
func (c *Client) Refund(ctx context.Context, r *headgatev1.RefundRequest) (*headgatev1.Verdict, error) {
	if err := valid(r, ""); err != nil {
		return nil, err
	}
	return ask(ctx, c, "refund", r, c.api.Refund)
}

// Reset forgets what was used, and returns the rules whose counters were forgotten.
func (c *Client) Reset(ctx context.Context, r *headgatev1.ResetRequest) ([]string, error) {
	if err := valid(r, ""); err != nil {
		return nil, err
	}
	answer, err := ask(ctx, c, "reset", r, c.api.Reset)
	return answer.GetRules(), err
}

// Reserve is Check for a request whose cost is an estimate. There is no reservation
// of a request that was denied, or that no rule binds.
func (c *Client) Reserve(ctx context.Context, r *headgatev1.ReserveRequest) (*headgatev1.ReserveResponse, error) {
	if err := valid(r, r.GetId()); err != nil {
		return nil, err
	}
	return ask(ctx, c, "reserve", r, c.api.Reserve)
}

// Settle says what a reserved request has cost. It may be repeated at the same
// cost. The error wraps [headgate.ErrNoReservation] if it is too late, and
// [headgate.ErrConflict] if the reservation was settled at another cost.
func (c *Client) Settle(ctx context.Context, r *headgatev1.SettleRequest) (*headgatev1.Verdict, error) {
	return ask(ctx, c, "settle", r, c.api.Settle)
}

// Cancel gives a reservation back as a whole. Errors are as those of Settle.
func (c *Client) Cancel(ctx context.Context, id string) (*headgatev1.Verdict, error) {
	return ask(ctx, c, "cancel", &headgatev1.CancelRequest{Reservation: id}, c.api.Cancel)
}

// Explain says which rules bind a request and why, and charges nothing.
func (c *Client) Explain(ctx context.Context, r *headgatev1.ExplainRequest) (*headgatev1.Explanation, error) {
	if err := valid(&headgatev1.CheckRequest{Entries: r.GetEntries(), Usage: r.GetUsage()}, ""); err != nil {
		return nil, err
	}
	return ask(ctx, c, "explain", r, c.api.Explain)
}

// valid returns an [*headgate.InvalidError] for a request with text that protobuf
// cannot send. Over a stream, all calls that are under way would end with it.
func valid(r interface {
	GetEntries() map[string]string
	GetChecks() []*headgatev1.Check
}, id string,
) error {
	var problems headgate.Problems
	if !utf8.ValidString(id) {
		problems.Add("id", "the id is not UTF-8")
	}
	for name, value := range r.GetEntries() {
		if !utf8.ValidString(name) {
			problems.Add("entries", "the name of the entry %q is not UTF-8", name)
		}
		if !utf8.ValidString(value) {
			problems.Add("entries."+name, "the value of the entry %q is not UTF-8", name)
		}
	}
	if u, ok := r.(interface{ GetUsage() *headgatev1.Usage }); ok && !utf8.ValidString(u.GetUsage().GetModel()) {
		problems.Add("usage.model", "the model of the usage is not UTF-8")
	}
	for i, c := range r.GetChecks() {
		if !utf8.ValidString(c.GetRule()) {
			problems.Add(fmt.Sprintf("checks[%d].rule", i), "the rule of check %d is not UTF-8", i+1)
		}
		if !utf8.ValidString(c.GetKey()) {
			problems.Add(fmt.Sprintf("checks[%d].key", i), "the key of check %d is not UTF-8", i+1)
		}
	}
	return problems.Err("request")
}

// ask makes one call of gRPC, within the deadline and the bound on calls.
func ask[Q, A any](ctx context.Context, c *Client, doing string, q Q, call func(context.Context, Q, ...grpc.CallOption) (A, error)) (answer A, err error) {
	if err := ctx.Err(); err != nil {
		return answer, failed(doing, err)
	}
	if _, err := c.flight.begin(); err != nil {
		return answer, failed(doing, err)
	}
	defer c.flight.end()
	deadline, err := c.deadlines.shared()
	if err != nil {
		return answer, failed(doing, err)
	}
	ctx, cancel := until(ctx, deadline)
	defer cancel()
	if answer, err = call(ctx, q); err != nil {
		return answer, failed(doing, err)
	}
	return answer, nil
}

// checkStreams are streams of checks.
type checkStreams struct{ api headgatev1.HeadgateClient }

func (t checkStreams) open(ctx context.Context) (stream[*headgatev1.CheckRequest, *headgatev1.Verdict], error) {
	s, err := t.api.CheckStream(ctx)
	return checkStream{s}, err
}

// checkWeight is what a check takes beside its texts.
const checkWeight = 32

func (checkStreams) weight(r *headgatev1.CheckRequest) int {
	n := checkWeight + len(r.GetId()) + len(r.GetUsage().GetModel())
	if r.GetUsage() != nil {
		n += checkWeight
	}
	for _, c := range r.GetChecks() {
		n += checkWeight + len(c.GetRule()) + len(c.GetKey())
	}
	for name, value := range r.GetEntries() {
		n += checkWeight + len(name) + len(value)
	}
	return n
}

type checkStream struct {
	grpc.BidiStreamingClient[headgatev1.CheckStreamRequest, headgatev1.CheckStreamResponse]
}

func (s checkStream) send(items []item[*headgatev1.CheckRequest]) error {
	m := &headgatev1.CheckStreamRequest{Checks: make([]*headgatev1.NumberedCheck, len(items))}
	all := make([]headgatev1.NumberedCheck, len(items))
	for i := range items {
		all[i].Number, all[i].Request = items[i].number, items[i].question
		m.Checks[i] = &all[i]
	}
	return s.Send(m)
}

func (s checkStream) receive(each func(uint64, *headgatev1.Verdict, error)) error {
	m, err := s.Recv()
	if err != nil {
		return err
	}
	for _, r := range m.GetResults() {
		if r.GetVerdict() == nil {
			each(r.GetNumber(), nil, resultError(r.GetError()))
			continue
		}
		each(r.GetNumber(), r.GetVerdict(), nil)
	}
	return nil
}
