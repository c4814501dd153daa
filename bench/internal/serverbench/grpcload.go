package serverbench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/workload"
)

// raw is a message that was encoded beforehand, and an answer that nobody decodes,
// so that the generator leaves the machine to the server.
type raw struct{ bytes []byte }

// rawCodec passes raw messages through. Servers see an ordinary client.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(*raw).bytes)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m := v.(*raw)
	n := data.Len()
	if cap(m.bytes) < n {
		m.bytes = make([]byte, n)
	}
	m.bytes = m.bytes[:n]
	data.CopyTo(m.bytes)
	return nil
}

// The shape of the load over gRPC, whatever its kind: how many connections there are, and how many
// messages are on their way over all of them.
const (
	connections = 4
	inFlight    = 256
)

// question is what one contender is asked.
type question struct {
	method string
	stream bool
	// together is how many checks there are in one message.
	together int
	// message asks about the keys.
	message func(keys []string) proto.Message
	// right checks an answer: the first one on each connection.
	right func(answer []byte, keys []string) error
}

// asking is the question by a method, with one check in a message. An answer is decoded as the
// message that right expects.
func asking[A any, M interface {
	*A
	proto.Message
}](method string, stream bool, message func(keys []string) proto.Message, right func(m M, keys []string) bool) question {
	return question{method, stream, 1, message, func(answer []byte, keys []string) error {
		m := M(new(A))
		if err := proto.Unmarshal(answer, m); err != nil {
			return err
		}
		if !right(m, keys) {
			return fmt.Errorf("%w: %v", errAnswer, m)
		}
		return nil
	}}
}

// over is the [load] of the question about so many keys.
func (q question) over(keys int) load {
	return func(ctx context.Context, addr string, d time.Duration) (measure.Sample, error) {
		n, err := q.load(ctx, addr, inFlight, keys, d)
		return measure.Sample{Done: n}, err
	}
}

// load keeps inFlight messages on their way for about d, over all connections,
// and returns how many checks were answered.
func (q *question) load(ctx context.Context, addr string, inFlight, keys int, d time.Duration) (int, error) {
	messages, asked, err := q.prepare(keys)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, d+30*time.Second)
	defer cancel()
	var conns [connections]*grpc.ClientConn
	for c := range conns {
		conns[c], err = grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
		if err != nil {
			return 0, fmt.Errorf("serverbench: %w", err)
		}
		defer func() { _ = conns[c].Close() }() // nothing is on its way any more
	}
	callers, end := inFlight, time.Now().Add(d)
	if q.stream {
		callers = connections
	}
	return measure.Sum(ctx, callers, func(ctx context.Context, w int) (done int, err error) {
		conn, from := conns[w%connections], w*len(messages)/callers
		if q.stream {
			done, err = q.converse(ctx, conn, messages, asked, from, inFlight/connections, end)
		} else {
			done, err = q.call(ctx, conn, messages, asked, from, end)
		}
		if err != nil {
			err = fmt.Errorf("serverbench: %s: %w", q.method, err)
		}
		return done, err
	})
}

// prepare encodes a message for every key, and says which keys each asks about.
func (q *question) prepare(keys int) (messages []*raw, asked [][]string, err error) {
	for i := range keys {
		var group []string
		for j := range q.together {
			group = append(group, workload.Key((i+j)%keys))
		}
		b, err := proto.Marshal(q.message(group))
		if err != nil {
			return nil, nil, fmt.Errorf("serverbench: %w", err)
		}
		messages, asked = append(messages, &raw{b}), append(asked, group)
	}
	return messages, asked, nil
}

// call makes one call after the other.
func (q *question) call(ctx context.Context, conn *grpc.ClientConn, messages []*raw, asked [][]string, from int, end time.Time) (done int, err error) {
	var answer raw
	for done == 0 || time.Now().Before(end) {
		i := (from + done) % len(messages)
		if err := conn.Invoke(ctx, q.method, messages[i], &answer); err != nil {
			return done, err
		}
		if done == 0 {
			if err := q.right(answer.bytes, asked[i]); err != nil {
				return done, err
			}
		}
		done++
	}
	return done, nil
}

// converse keeps window messages on their way over one stream.
func (q *question) converse(ctx context.Context, conn *grpc.ClientConn, messages []*raw, asked [][]string, from, window int, end time.Time) (done int, err error) {
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, q.method)
	if err != nil {
		return 0, err
	}
	for i := range window {
		if err := s.SendMsg(messages[(from+i)%len(messages)]); err != nil {
			return 0, err
		}
	}
	var answer raw
	for next := window; next > 0; {
		if err := s.RecvMsg(&answer); err != nil {
			return done, err
		}
		if done == 0 {
			if err := q.right(answer.bytes, asked[from%len(asked)]); err != nil {
				return done, err
			}
		}
		done += q.together
		if !time.Now().Before(end) {
			next--
			continue
		}
		if err := s.SendMsg(messages[(from+window+done/q.together)%len(messages)]); err != nil {
			return done, err
		}
	}
	return done, s.CloseSend()
}

var errAnswer = errors.New("the answer is not what was asked for")
