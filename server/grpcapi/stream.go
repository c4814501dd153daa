package grpcapi

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/wire"
)

// CheckStream implements the service.
func (s *Service) CheckStream(stream grpc.BidiStreamingServer[headgatev1.CheckStreamRequest, headgatev1.CheckStreamResponse]) error {
	return s.serve(stream, (*headgatev1.CheckStreamRequest)(nil), (*headgatev1.CheckStreamResponse)(nil), s.answer)
}

// answer is Check for a request of a stream.
func (s *Service) answer(ctx context.Context, text string, out []byte) ([]byte, error) {
	r := s.pool.get()
	var o *decide.Outcome
	err := decodeRequest(r, text)
	if err == nil {
		o, err = s.decide(ctx, headgate.OpTake, r)
	}
	if err == nil {
		out = s.appendVerdict(out, r.Policy.Set, o)
	}
	s.pool.put(r)
	return out, err
}

// The field numbers of CheckRequest, and of the messages in it.
const (
	requestEntries    protowire.Number = 1
	requestChecks     protowire.Number = 2
	requestCost       protowire.Number = 3
	requestID         protowire.Number = 4
	requestLifetimeMS protowire.Number = 5
	requestUsage      protowire.Number = 6

	entryName  protowire.Number = 1
	entryValue protowire.Number = 2

	checkRule protowire.Number = 1
	checkKey  protowire.Number = 2
	checkCost protowire.Number = 3

	usageModel       protowire.Number = 1
	usageInput       protowire.Number = 2
	usageCachedInput protowire.Number = 3
	usageCacheWrite  protowire.Number = 4
	usageOutput      protowire.Number = 5
)

// decodeRequest reads a CheckRequest.
func decodeRequest(r *decide.Request, text string) error {
	in := wire.Read(text)
	var id string
	var lifetimeMS int64
	r.Unordered = true
	for {
		field, kind, more := in.Field()
		switch {
		case !more:
			setTerms(r, id, lifetimeMS)
			return in.Err()
		case field == requestEntries && kind == protowire.BytesType:
			inner := in.Message()
			decodeEntry(r, &inner)
			in.Leave(&inner)
		case field == requestChecks && kind == protowire.BytesType:
			inner := in.Message()
			decodeCheck(r, &inner)
			in.Leave(&inner)
		case field == requestCost && kind == protowire.VarintType:
			r.Cost = int64(in.Varint())
			r.Given |= decide.GivenCost
		case field == requestID && kind == protowire.BytesType:
			id = in.String()
		case field == requestLifetimeMS && kind == protowire.VarintType:
			lifetimeMS = int64(in.Varint())
		case field == requestUsage && kind == protowire.BytesType:
			if r.Usage == nil {
				r.Usage = new(models.Usage)
				r.Given |= decide.GivenUsage
			}
			inner := in.Message()
			decodeUsage(r.Usage, &inner)
			in.Leave(&inner)
		default:
			in.Skip(field, kind)
		}
	}
}

func decodeEntry(r *decide.Request, in *wire.Reader) {
	var e policy.Entry
	for {
		field, kind, more := in.Field()
		switch {
		case !more:
			addEntry(r, e)
			return
		case field == entryName && kind == protowire.BytesType:
			e.Name = in.String()
		case field == entryValue && kind == protowire.BytesType:
			e.Value = in.String()
		default:
			in.Skip(field, kind)
		}
	}
}

func decodeUsage(u *models.Usage, in *wire.Reader) {
	numbers := [...]*int64{usageInput: &u.Input, usageCachedInput: &u.CachedInput, usageCacheWrite: &u.CacheWrite, usageOutput: &u.Output}
	for {
		field, kind, more := in.Field()
		switch {
		case !more:
			return
		case field == usageModel && kind == protowire.BytesType:
			u.Model = in.String()
		case field >= usageInput && field <= usageOutput && kind == protowire.VarintType:
			*numbers[field] = int64(in.Varint())
		default:
			in.Skip(field, kind)
		}
	}
}

func decodeCheck(r *decide.Request, in *wire.Reader) {
	var c decide.Named
	for {
		field, kind, more := in.Field()
		switch {
		case !more:
			addCheck(r, c)
			return
		case field == checkRule && kind == protowire.BytesType:
			c.Rule = in.String()
		case field == checkKey && kind == protowire.BytesType:
			c.Key = in.String()
		case field == checkCost && kind == protowire.VarintType:
			c.Cost = int64(in.Varint())
			c.Given |= decide.GivenCost
		default:
			in.Skip(field, kind)
		}
	}
}
