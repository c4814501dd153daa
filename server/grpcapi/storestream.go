package grpcapi

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api/content"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"

	"github.com/headgate/headgate/server/wire"
)

// TakeStream implements the service.
func (s *Store) TakeStream(stream grpc.BidiStreamingServer[headgatev1.TakeStreamRequest, headgatev1.TakeStreamResponse]) error {
	if err := s.admit(stream.Context()); err != nil {
		return err
	}
	return s.serve(stream, (*headgatev1.TakeStreamRequest)(nil), (*headgatev1.TakeStreamResponse)(nil), s.answer)
}

// answer is Take for a request of a stream.
func (s *Store) answer(ctx context.Context, text string, out []byte) ([]byte, error) {
	t := s.pool.get()
	err := s.decode(t, text)
	if err == nil {
		err = s.do(ctx, t)
	}
	if err == nil {
		out = appendDecisions(out, t.decisions)
	}
	s.pool.put(t)
	return out, err
}

// The field numbers of TakeRequest and TakeResponse, and of the messages in them.
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
	in := wire.Read(text)
	for {
		field, kind, more := in.Field()
		switch {
		case !more:
			return in.Err()
		case field == takeOp && kind == protowire.VarintType:
			t.op = opOf(int64(in.Varint()))
		case field == takeChecks && kind == protowire.BytesType:
			inner := in.Message()
			s.decodeCheck(t, &inner)
			in.Leave(&inner)
		default:
			in.Skip(field, kind)
		}
	}
}

func (s *Store) decodeCheck(t *take, in *wire.Reader) {
	var (
		c       headgate.Check
		rule    *headgate.Rule
		err     error
		onError int64
	)
	for {
		field, kind, more := in.Field()
		if !more {
			t.addCheck(rule, err, c, onError)
			return
		}
		switch {
		case field == storeCheckRule && kind == protowire.BytesType:
			rule, err = s.rules.of(in.Bytes())
		case field == storeCheckKey && kind == protowire.BytesType:
			c.Key = in.Bytes()
		case kind != protowire.VarintType:
			in.Skip(field, kind)
		default:
			switch n := in.Varint(); field {
			case storeCheckCost:
				c.Cost = int64(n)
			case storeCheckAt:
				c.At = headgate.Instant(n)
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

// appendDecisions appends the result of newDecisions in wire form.
func appendDecisions(b []byte, decisions []headgate.Decision) []byte {
	for i := range decisions {
		d := &decisions[i]
		var start int
		b, start = wire.Begin(b, takeDecisions)
		b = wire.AppendBool(b, storeDecisionAllowed, d.Allowed)
		b = wire.AppendInt(b, storeDecisionRemaining, d.Remaining)
		b = wire.AppendInt(b, storeDecisionRetryAfterUS, content.Micros(d.RetryAfter))
		b = wire.AppendInt(b, storeDecisionResetAfterUS, content.Micros(d.ResetAfter))
		b = wire.AppendInt(b, storeDecisionDelayUS, content.Micros(d.Delay))
		b = wire.AppendInt(b, storeDecisionAt, int64(d.At))
		b = wire.AppendInt(b, storeDecisionSource, int64(d.Source))
		b = wire.End(wire.AppendInt(b, storeDecisionCheck, int64(d.Check)), start)
	}
	return b
}
