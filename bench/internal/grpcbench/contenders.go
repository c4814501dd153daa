package grpcbench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/proto"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/bench/internal/servicebench"
)

// group is a kind of load, with its own echo to be held against.
type group uint8

const (
	calls group = iota
	streams
)

// contender is one server, asked in one way.
type contender struct {
	servicebench.Contender
	group    group
	question question
}

// together is how many checks a message has that has several.
const together = 16

// one is a check of a key by the rule's name.
func one(key string) *headgatev1.CheckRequest {
	cost := int64(1)
	return &headgatev1.CheckRequest{Checks: []*headgatev1.Check{{Rule: servicebench.RuleName, Key: key, Cost: &cost}}}
}

func numbered(keys []string) *headgatev1.CheckStreamRequest {
	m := new(headgatev1.CheckStreamRequest)
	for i, key := range keys {
		m.Checks = append(m.Checks, &headgatev1.NumberedCheck{Number: uint64(i + 1), Request: one(key)})
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
	askCheck = question{
		method: headgatev1.Headgate_Check_FullMethodName, together: 1,
		message: func(keys []string) proto.Message { return one(keys[0]) },
		right: func(answer []byte, _ []string) error {
			m := new(headgatev1.Verdict)
			return decoded(answer, m, func() bool { return m.GetAllowed() && len(m.GetDecisions()) == 1 })
		},
	}
	askStream = question{
		method: headgatev1.Headgate_CheckStream_FullMethodName, stream: true, together: 1,
		message: func(keys []string) proto.Message { return numbered(keys) },
		right: func(answer []byte, keys []string) error {
			m := new(headgatev1.CheckStreamResponse)
			return decoded(answer, m, func() bool {
				return len(m.GetResults()) == len(keys) && len(m.GetResults()[0].GetVerdict().GetDecisions()) == 1
			})
		},
	}
	askTake = question{
		method: headgatev1.Store_Take_FullMethodName, together: 1,
		message: func(keys []string) proto.Message { return content(keys[0]) },
		right: func(answer []byte, _ []string) error {
			m := new(headgatev1.TakeResponse)
			return decoded(answer, m, func() bool { return len(m.GetDecisions()) == 1 && m.GetDecisions()[0].GetAllowed() })
		},
	}
	askTakeStream = question{
		method: headgatev1.Store_TakeStream_FullMethodName, stream: true, together: 1,
		message: func(keys []string) proto.Message {
			m := new(headgatev1.TakeStreamRequest)
			for i, key := range keys {
				m.Takes = append(m.Takes, &headgatev1.NumberedTake{Number: uint64(i + 1), Request: content(key)})
			}
			return m
		},
		right: func(answer []byte, keys []string) error {
			m := new(headgatev1.TakeStreamResponse)
			return decoded(answer, m, func() bool {
				return len(m.GetResults()) == len(keys) && m.GetResults()[0].GetResponse().GetDecisions()[0].GetAllowed()
			})
		},
	}
	askEcho = question{
		method: echoUnary, together: 1, message: askCheck.message,
		right: func(answer []byte, keys []string) error {
			m := new(headgatev1.CheckRequest)
			return decoded(answer, m, func() bool { return proto.Equal(m, one(keys[0])) })
		},
	}
	askEchoStream = question{
		method: echoStream, stream: true, together: 1, message: askStream.message,
		right: func(answer []byte, keys []string) error {
			m := new(headgatev1.CheckStreamRequest)
			return decoded(answer, m, func() bool { return proto.Equal(m, numbered(keys)) })
		},
	}
)

func decoded(answer []byte, m proto.Message, right func() bool) error {
	if err := proto.Unmarshal(answer, m); err != nil {
		return err
	}
	if !right() {
		return fmt.Errorf("%w: %v", errAnswer, m)
	}
	return nil
}

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

// field has all contenders. The echoes are a program whose "echo" command,
// with the handler "grpc", calls [Serve]: the benchmark itself. The server is built
// from the module at source.
func field(ctx context.Context, program, source, dir string) ([]contender, error) {
	binary, err := servicebench.Build(ctx, source, dir)
	if err != nil {
		return nil, err
	}
	policy := filepath.Join(dir, "grpc.yaml")
	if err := os.WriteFile(policy, []byte(servicebench.Policy), 0o600); err != nil {
		return nil, fmt.Errorf("grpcbench: %w", err)
	}
	ours := []string{binary, "serve", "--config", policy, "--listen", "127.0.0.1:0", "--grpc-listen", "ADDR", "--grpc-store", "--store", "memory"}
	echo := []string{program, "echo", "-listen", "ADDR", "-handler", "grpc"}
	return []contender{
		{
			servicebench.Contender{Name: "Headgate, Check", Role: servicebench.Ours, Command: ours, Note: "a call for each check, by rule and key"},
			calls, askCheck,
		},
		{
			servicebench.Contender{Name: "Headgate, Check by entries", Role: servicebench.Ours, Command: ours, Note: "the same, by a descriptor with an API key"},
			calls, byEntries(),
		},
		{
			servicebench.Contender{Name: "Headgate, Store.Take", Role: servicebench.Ours, Command: ours, Note: "a call for each check, with its rule: what the library's client sends"},
			calls, askTake,
		},
		{
			servicebench.Contender{Name: "grpc-go echo of calls", Role: servicebench.Floor, Command: echo, Note: "decodes the request of Check and encodes it again"},
			calls, askEcho,
		},
		{
			servicebench.Contender{Name: "Headgate, CheckStream", Role: servicebench.Ours, Command: ours, Note: "one check in each message of a stream, by rule and key"},
			streams, askStream,
		},
		{
			servicebench.Contender{Name: "Headgate, Store.TakeStream", Role: servicebench.Ours, Command: ours, Note: "the same, each check with its rule"},
			streams, askTakeStream,
		},
		{
			servicebench.Contender{Name: "grpc-go echo of a stream", Role: servicebench.Floor, Command: echo, Note: "decodes the message of CheckStream and encodes it again"},
			streams, askEchoStream,
		},
		{
			servicebench.Contender{Name: "Headgate, CheckStream, 16 together", Command: ours, Note: "sixteen checks in each message, as the client sends them when they wait for each other"},
			streams, askStream.withMany(),
		},
		{
			servicebench.Contender{Name: "Headgate, Store.TakeStream, 16 together", Command: ours, Note: "the same, each check with its rule"},
			streams, askTakeStream.withMany(),
		},
	}, nil
}
