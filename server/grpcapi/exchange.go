package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/server/wire"
)

// The field numbers that the messages of all streams share.
const (
	streamItems protowire.Number = 1 // of a message in either direction

	itemNumber  protowire.Number = 1
	itemRequest protowire.Number = 2

	resultNumber protowire.Number = 1
	resultAnswer protowire.Number = 2
	resultError  protowire.Number = 3
)

// answerer appends the answer to one request of a stream; both are in wire form. The error is a
// gRPC status, or wraps [wire.ErrWire].
type answerer func(ctx context.Context, request string, out []byte) ([]byte, error)

// streams has what the streams and batches of a service share.
type streams struct {
	options Options
	buffers *sync.Pool // of *[]byte
	permits permits
	held    *held
}

func newStreams(o Options) streams { return streams{o, new(sync.Pool), newPermits(), new(held)} }

// serve answers the requests of a stream. in and out are of the types of its messages.
func (s *streams) serve(stream grpc.ServerStream, in, out proto.Message, answer answerer) error {
	x := &exchange{stream: stream, in: newFrame(in), out: newFrame(out), answer: answer, held: s.held}
	if s.options.SideBySide {
		x.workers = newWorkers(x, s.permits, s.buffers)
	}
	return x.serve(s.options.Ending)
}

// exchange is one stream of numbered requests and their answers. One goroutine receives messages,
// and decides their requests itself or hands them to its workers. The goroutine of the handler waits for
// it, or for a shutdown.
type exchange struct {
	stream  grpc.ServerStream
	answer  answerer
	held    *held
	workers *workers // nil: requests are decided one after another
	in      *frame
	out     *frame

	ctx      context.Context
	cancel   context.CancelFunc
	panicked atomic.Pointer[any]

	mu    sync.Mutex // held while a message is handled; guards what follows
	over  bool       // No further message may be handled.
	items []item
}

// serve answers requests until the caller has sent its last one, or ending is closed. Then every
// message that it has begun to handle is answered, and no other one is decided.
func (x *exchange) serve(ending <-chan struct{}) error {
	x.ctx, x.cancel = context.WithCancel(x.stream.Context())
	defer x.cancel()
	received := make(chan error, 1)
	go func() {
		defer x.caught()
		received <- x.receive()
	}()
	var err error
	select {
	case err = <-received:
	case <-ending:
		err = errEnded()
	case <-x.ctx.Done():
		err = status.FromContextError(x.ctx.Err()).Err()
	}
	// The receiving goroutine ends when this function returns, which ends the stream.
	x.mu.Lock()
	x.over = true
	x.mu.Unlock()
	if x.workers != nil {
		if sending := x.workers.end(); err == nil {
			err = sending
		}
	}
	if p := x.panicked.Load(); p != nil {
		panic(*p) // panic in the handler's goroutine, where the server recovers
	}
	return err
}

// caught recovers a panic for serve, and ends the stream. Every goroutine of the stream defers it.
func (x *exchange) caught() {
	if p := recover(); p != nil {
		x.panicked.CompareAndSwap(nil, &p)
		x.cancel()
	}
}

// receive handles one message after another.
func (x *exchange) receive() error {
	for {
		if err := x.stream.RecvMsg(x.in); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		size := len(x.in.text)
		if err := x.held.add(size); err != nil {
			return err
		}
		more, err := x.deal(x.in.text)
		x.held.remove(size)
		if err != nil || !more {
			return err
		}
		x.in.Reset() // Release the text while waiting for the next message.
	}
}

// deal answers the requests of a message, or hands them to the workers. It returns false for more if
// the stream is over.
func (x *exchange) deal(text string) (more bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return false, nil
	}
	if x.items, err = readItems(x.items[:0], text); err != nil || len(x.items) == 0 {
		return true, err
	}
	defer clear(x.items)
	if x.workers != nil {
		for _, it := range x.items {
			if err := x.workers.hand(it); err != nil {
				return false, err
			}
		}
		return true, nil
	}
	for i, it := range x.items {
		x.out.out = x.append(x.out.out, it)
		if i+1 < len(x.items) && len(x.out.out) < maxAnswer {
			continue
		}
		if err := x.flush(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// maxAnswer is the size, in bytes, from which results are sent without collecting more. Larger
// buffers are not kept.
const maxAnswer = 32 << 10

// flush sends the results that are in out.
func (x *exchange) flush() error {
	err := x.stream.SendMsg(x.out)
	if x.out.out = x.out.out[:0]; cap(x.out.out) > 2*maxAnswer {
		x.out.out = nil
	}
	return err
}

// readItems appends the items of a message. It reads the whole message before any item is decided.
// The error is a gRPC status.
func readItems(items []item, text string) ([]item, error) {
	for r := wire.Read(text); ; {
		field, kind, more := r.Field()
		switch {
		case !more && r.Err() != nil:
			return items, notProtobuf(r.Err())
		case !more:
			return items, nil
		case field != streamItems || kind != protowire.BytesType:
			r.Skip(field, kind)
			continue
		}
		it, err := readItem(r.Bytes())
		if err != nil {
			return items, notProtobuf(err)
		}
		if len(items) == MaxTogether {
			return items, newStatus(codes.InvalidArgument, ReasonInvalid, fmt.Sprintf("a message has more than %d requests; send several messages", MaxTogether))
		}
		items = append(items, it)
	}
}

// item is one numbered request.
type item struct {
	number  uint64
	request string
}

func readItem(text string) (it item, err error) {
	r := wire.Read(text)
	for {
		field, kind, more := r.Field()
		switch {
		case !more:
			return it, r.Err()
		case field == itemNumber && kind == protowire.VarintType:
			it.number = r.Varint()
		case field == itemRequest && kind == protowire.BytesType:
			it.request = r.Bytes()
		default:
			r.Skip(field, kind)
		}
	}
}

// append decides one request and appends its result.
func (x *exchange) append(out []byte, it item) []byte {
	out, result := wire.Begin(out, streamItems)
	if it.number != 0 {
		out = protowire.AppendVarint(protowire.AppendTag(out, resultNumber, protowire.VarintType), it.number)
	}
	before := len(out)
	out, answer := wire.Begin(out, resultAnswer)
	out, err := x.answer(x.ctx, it.request, out)
	if err == nil {
		return wire.End(wire.End(out, answer), result)
	}
	if errors.Is(err, wire.ErrWire) {
		err = notProtobuf(err)
	}
	text, marshal := proto.Marshal(status.Convert(err).Proto())
	if marshal != nil {
		// Its text or its details are not valid UTF-8. The code alone must do.
		text, _ = proto.Marshal(status.New(status.Code(err), "").Proto())
	}
	out = protowire.AppendTag(out[:before], resultError, protowire.BytesType)
	return wire.End(protowire.AppendBytes(out, text), result)
}

func notProtobuf(err error) error {
	return newStatus(codes.InvalidArgument, ReasonInvalid, err.Error())
}
