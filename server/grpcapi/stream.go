package grpcapi

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
)

// CheckStream implements the service.
func (s *Service) CheckStream(stream grpc.BidiStreamingServer[headgatev1.CheckStreamRequest, headgatev1.CheckStreamResponse]) error {
	x := &exchange{
		stream: stream,
		in:     newFrame((*headgatev1.CheckStreamRequest)(nil)),
		out:    newFrame((*headgatev1.CheckStreamResponse)(nil)),
		answer: s.answer,
	}
	if s.options.SideBySide {
		x.crew = newCrew(x, s.permits, &s.buffers)
	}
	return x.serve(s.options.Ending)
}

// answer is Check for a request of a stream.
func (s *Service) answer(ctx context.Context, text string, out []byte) ([]byte, error) {
	sc := s.get()
	err := sc.request.decode(text)
	if err == nil {
		err = s.decide(ctx, headgate.OpTake, sc)
	}
	if err == nil {
		out = s.appendVerdict(out, headgate.OpTake, sc)
	}
	s.put(sc)
	return out, err
}

// The fields of CheckRequest and what is in it.
const (
	requestEntries    protowire.Number = 1
	requestChecks     protowire.Number = 2
	requestCost       protowire.Number = 3
	requestID         protowire.Number = 4
	requestLifetimeMS protowire.Number = 5

	entryName  protowire.Number = 1
	entryValue protowire.Number = 2

	checkRule protowire.Number = 1
	checkKey  protowire.Number = 2
	checkCost protowire.Number = 3
)

// decode reads a CheckRequest.
func (r *request) decode(text string) error {
	in := reader{text: text}
	for {
		field, kind, more := in.field()
		switch {
		case !more:
			return in.err()
		case field == requestEntries && kind == protowire.BytesType:
			inner := reader{text: in.bytes()}
			r.decodeEntry(&inner)
			in.bad = in.bad || inner.bad
		case field == requestChecks && kind == protowire.BytesType:
			inner := reader{text: in.bytes()}
			r.decodeCheck(&inner)
			in.bad = in.bad || inner.bad
		case field == requestCost && kind == protowire.VarintType:
			r.cost = units{int64(in.varint()), true}
		case field == requestID && kind == protowire.BytesType:
			r.id = in.string()
		case field == requestLifetimeMS && kind == protowire.VarintType:
			r.lifetimeMS = int64(in.varint())
		default:
			in.skip(field, kind)
		}
	}
}

func (r *request) decodeEntry(in *reader) {
	var name, value string
	for {
		field, kind, more := in.field()
		switch {
		case !more:
			r.addEntry(name, value)
			return
		case field == entryName && kind == protowire.BytesType:
			name = in.string()
		case field == entryValue && kind == protowire.BytesType:
			value = in.string()
		default:
			in.skip(field, kind)
		}
	}
}

func (r *request) decodeCheck(in *reader) {
	var c named
	for {
		field, kind, more := in.field()
		switch {
		case !more:
			r.addCheck(c)
			return
		case field == checkRule && kind == protowire.BytesType:
			c.rule = in.string()
		case field == checkKey && kind == protowire.BytesType:
			c.key = in.string()
		case field == checkCost && kind == protowire.VarintType:
			c.cost = units{int64(in.varint()), true}
		default:
			in.skip(field, kind)
		}
	}
}
