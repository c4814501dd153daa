package serverbench

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
)

// together is how many checks a message has that has several.
const together = 16

// checkOne is a check of a key by the rule's name.
func checkOne(key string) *headgatev1.CheckRequest {
	cost := int64(1)
	return &headgatev1.CheckRequest{Checks: []*headgatev1.Check{{Rule: ruleName, Key: key, Cost: &cost}}}
}

func numbered(keys []string) *headgatev1.CheckStreamRequest {
	m := new(headgatev1.CheckStreamRequest)
	for i, key := range keys {
		m.Checks = append(m.Checks, &headgatev1.NumberedCheck{Number: uint64(i + 1), Request: checkOne(key)})
	}
	return m
}

// content is a check of a key by a rule that is sent along.
func content(key string) *headgatev1.TakeRequest {
	rule := &headgatev1.Rule{Name: "own", Limits: []*headgatev1.Limit{{Count: 1_000_000, PeriodUs: time.Hour.Microseconds()}}}
	return &headgatev1.TakeRequest{Checks: []*headgatev1.StoreCheck{{Rule: rule, Key: []byte(key), Cost: 1}}}
}

// The questions, and what is right about their answers.
var (
	askCheck = asking(headgatev1.Headgate_Check_FullMethodName, false,
		func(keys []string) proto.Message { return checkOne(keys[0]) },
		func(m *headgatev1.Verdict, _ []string) bool { return m.GetAllowed() && len(m.GetDecisions()) == 1 })
	askStream = asking(headgatev1.Headgate_CheckStream_FullMethodName, true,
		func(keys []string) proto.Message { return numbered(keys) },
		func(m *headgatev1.CheckStreamResponse, keys []string) bool {
			return len(m.GetResults()) == len(keys) && len(m.GetResults()[0].GetVerdict().GetDecisions()) == 1
		})
	askTake = asking(headgatev1.Store_Take_FullMethodName, false,
		func(keys []string) proto.Message { return content(keys[0]) },
		func(m *headgatev1.TakeResponse, _ []string) bool {
			return len(m.GetDecisions()) == 1 && m.GetDecisions()[0].GetAllowed()
		})
	askTakeStream = asking(headgatev1.Store_TakeStream_FullMethodName, true,
		func(keys []string) proto.Message {
			m := new(headgatev1.TakeStreamRequest)
			for i, key := range keys {
				m.Takes = append(m.Takes, &headgatev1.NumberedTake{Number: uint64(i + 1), Request: content(key)})
			}
			return m
		},
		func(m *headgatev1.TakeStreamResponse, keys []string) bool {
			return len(m.GetResults()) == len(keys) && m.GetResults()[0].GetResponse().GetDecisions()[0].GetAllowed()
		})
	askEcho = asking(echoUnary, false, askCheck.message,
		func(m *headgatev1.CheckRequest, keys []string) bool { return proto.Equal(m, checkOne(keys[0])) })
	askEchoStream = asking(echoStream, true, askStream.message,
		func(m *headgatev1.CheckStreamRequest, keys []string) bool { return proto.Equal(m, numbered(keys)) })
)

// withMany is the question with several checks in a message.
func (q question) withMany() question {
	q.together = together
	return q
}

// byEntries asks by a descriptor.
func byEntries() question {
	q := askCheck
	q.message = func(keys []string) proto.Message {
		return &headgatev1.CheckRequest{Entries: map[string]string{"api_key": keys[0]}}
	}
	return q
}

// GRPC measures what one check costs the server over gRPC, beside bare servers of grpc-go that only
// echo: calls beside an echo of calls, and streams beside an echo of a stream.
func GRPC(ctx context.Context, w *measure.Work) (*report.Text, error) {
	serve, err := serving(ctx, w)
	if err != nil {
		return nil, err
	}
	plan := serverPlan(w)
	contenders := grpcField(plan.Keys, serve("--listen", "127.0.0.1:0", "--grpc-listen", "ADDR", "--grpc-store"), echoing(w, "grpc", ""))
	rows, err := saturate(ctx, w, plan, contenders)
	if err != nil {
		return nil, err
	}
	t := new(report.Text)
	t.Say("Closed loop, saturated: %d messages on their way over %d connections, one stream on each; %s keys, every request admitted; median of %d rounds of %v.\n\n",
		inFlight, connections, report.Number(float64(plan.Keys)), plan.Rounds, plan.Slice)
	table := unaryEcho.table(t, rows[:grpcCalls])
	streamEcho := unaryEcho
	streamEcho.bound, streamEcho.bar = 1.6, "server CPU a check ÷ a bare stream echo"
	table.Append(streamEcho.table(t, rows[grpcCalls:]))
	t.Say("%s", table)
	return t, nil
}

var unaryEcho = comparison{
	"server CPU a check, µs", "÷ echo", "checks/s",
	1.5, "server CPU a check ÷ a bare unary echo",
}

// grpcCalls is how many of the contenders are asked by calls. The others are asked over streams.
const grpcCalls = 4

func grpcField(keys int, ours, echo []string) []contender {
	headgate := func(name string, role measure.Role, q question) contender {
		return contender{name: "Headgate, " + name, role: role, command: ours, load: q.over(keys)}
	}
	echoes := func(name string, q question) contender {
		return contender{name: "grpc-go echo of " + name, role: measure.Floor, command: echo, load: q.over(keys)}
	}
	return []contender{
		headgate("Check", measure.Ours, askCheck),
		headgate("Check by entries", measure.Ours, byEntries()),
		headgate("Store.Take", measure.Ours, askTake),
		echoes("calls", askEcho),
		headgate("CheckStream", measure.Ours, askStream),
		headgate("Store.TakeStream", measure.Ours, askTakeStream),
		echoes("a stream", askEchoStream),
		headgate("CheckStream, 16 together", measure.Other, askStream.withMany()),
		headgate("Store.TakeStream, 16 together", measure.Other, askTakeStream.withMany()),
	}
}

// The methods of the echo server.
const (
	echoService = "bench.Echo"
	echoUnary   = "/" + echoService + "/Unary"
	echoStream  = "/" + echoService + "/Stream"
)

// grpcEchoes is the service: what grpc-go and protobuf cost alone. Its two methods are
// written as generated code would have them.
var grpcEchoes = grpc.ServiceDesc{
	ServiceName: echoService,
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Unary",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			m := new(headgatev1.CheckRequest)
			return m, decode(m)
		},
	}},
	Streams: []grpc.StreamDesc{{
		StreamName: "Stream", ServerStreams: true, ClientStreams: true,
		Handler: func(_ any, s grpc.ServerStream) error {
			for {
				m := new(headgatev1.CheckStreamRequest)
				if err := s.RecvMsg(m); errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
				if err := s.SendMsg(m); err != nil {
					return err
				}
			}
		},
	}},
}

// serveGRPC serves with a bare grpc-go server that echoes, until the context ends.
func serveGRPC(ctx context.Context, l net.Listener) error {
	server := grpc.NewServer()
	server.RegisterService(&grpcEchoes, nil)
	server.RegisterService(&rlsEchoes, nil)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	return server.Serve(l)
}
