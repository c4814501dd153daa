package grpcapi

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api/content"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
)

// TakeStream implements the service.
func (s *Store) TakeStream(stream grpc.BidiStreamingServer[headgatev1.TakeStreamRequest, headgatev1.TakeStreamResponse]) error {
	if err := s.admit(stream.Context()); err != nil {
		return err
	}
	x := &exchange{
		stream: stream,
		in:     newFrame((*headgatev1.TakeStreamRequest)(nil)),
		out:    newFrame((*headgatev1.TakeStreamResponse)(nil)),
		answer: s.answer,
	}
	if s.options.SideBySide {
		x.crew = newCrew(x, s.permits, &s.buffers)
	}
	return x.serve(s.options.Ending)
}

// answer is Take for a request of a stream.
func (s *Store) answer(ctx context.Context, text string, out []byte) ([]byte, error) {
	t := s.get()
	err := s.decode(t, text)
	if err == nil {
		err = s.do(ctx, t)
	}
	if err == nil {
		out = appendDecisions(out, t.decisions)
	}
	s.put(t)
	return out, err
}

// The fields of TakeRequest and TakeResponse and what is in them.
const (
	takeOp     protowire.Number = 1
	takeChecks protowire.Number = 2

	storeCheckRule     protowire.Number = 1
	storeCheckKey      protowire.Number = 2
	storeCheckCost     protowire.Number = 3
	storeCheckAt       protowire.Number = 4
	storeCheckShadow   protowire.Number = 5
	storeCheckGiveBack protowire.Number = 6
	storeCheckOnError  protowire.Number = 7
	storeCheckFactor   protowire.Number = 8

	takeDecisions protowire.Number = 1

	storeDecisionAllowed      protowire.Number = 1
	storeDecisionRemaining    protowire.Number = 2
	storeDecisionRetryAfterUS protowire.Number = 3
	storeDecisionResetAfterUS protowire.Number = 4
	storeDecisionDelayUS      protowire.Number = 5
	storeDecisionAt           protowire.Number = 6
	storeDecisionSource       protowire.Number = 7
	storeDecisionCheck        protowire.Number = 8
)

// decode reads a TakeRequest.
func (s *Store) decode(t *take, text string) error {
	in := reader{text: text}
	for {
		field, kind, more := in.field()
		switch {
		case !more:
			return in.err()
		case field == takeOp && kind == protowire.VarintType:
			t.op = opOf(int64(in.varint()))
		case field == takeChecks && kind == protowire.BytesType:
			inner := reader{text: in.bytes()}
			s.decodeCheck(t, &inner)
			in.bad = in.bad || inner.bad
		default:
			in.skip(field, kind)
		}
	}
}

func (s *Store) decodeCheck(t *take, in *reader) {
	var (
		c       headgate.Check
		rule    *headgate.Rule
		err     error
		onError int64
	)
	for {
		field, kind, more := in.field()
		if !more {
			t.addCheck(rule, err, c, onError)
			return
		}
		switch {
		case field == storeCheckRule && kind == protowire.BytesType:
			rule, err = s.rules.of(in.bytes())
		case field == storeCheckKey && kind == protowire.BytesType:
			c.Key = in.bytes()
		case kind != protowire.VarintType:
			in.skip(field, kind)
		default:
			switch n := in.varint(); field {
			case storeCheckCost:
				c.Cost = int64(n)
			case storeCheckAt:
				c.At = int64(n)
			case storeCheckShadow:
				c.Shadow = n != 0
			case storeCheckGiveBack:
				c.GiveBack = n != 0
			case storeCheckOnError:
				onError = int64(n)
			case storeCheckFactor:
				c.Factor = int64(n)
			}
		}
	}
}

// appendDecisions appends what newDecisions says, as protobuf has it.
func appendDecisions(b []byte, decisions []headgate.Decision) []byte {
	for i := range decisions {
		d := &decisions[i]
		var start int
		b, start = begin(b, takeDecisions)
		b = appendBool(b, storeDecisionAllowed, d.Allowed)
		b = appendInt(b, storeDecisionRemaining, d.Remaining)
		b = appendInt(b, storeDecisionRetryAfterUS, content.Micros(d.RetryAfter))
		b = appendInt(b, storeDecisionResetAfterUS, content.Micros(d.ResetAfter))
		b = appendInt(b, storeDecisionDelayUS, content.Micros(d.Delay))
		b = appendInt(b, storeDecisionAt, d.At)
		b = appendInt(b, storeDecisionSource, int64(d.Source))
		b = end(appendInt(b, storeDecisionCheck, int64(d.Check)), start)
	}
	return b
}
