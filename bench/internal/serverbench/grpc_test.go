package serverbench

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
)

// TestGRPCEchoes: the echo server answers calls and streams, and what it answers is
// looked at.
func TestGRPCEchoes(t *testing.T) {
	addr := unused(t)
	ctx, stop := context.WithCancel(t.Context())
	var served sync.WaitGroup
	served.Go(func() {
		if err := Echo(ctx, addr, "grpc", ""); err != nil {
			t.Error(err)
		}
	})
	defer served.Wait()
	defer stop()
	if err := listens(t, addr); err != nil {
		t.Fatal(err)
	}
	for name, q := range map[string]question{"calls": askEcho, "a stream": askEchoStream, "several in a message": askEchoStream.withMany()} {
		n, err := q.load(t.Context(), addr, 8, 50, 50*time.Millisecond)
		if n == 0 || err != nil {
			t.Errorf("%s: %d answers, %v", name, n, err)
		}
	}
	wrong := askEcho
	wrong.right = askCheck.right
	if _, err := wrong.load(t.Context(), addr, 8, 50, 50*time.Millisecond); !errors.Is(err, errAnswer) {
		t.Errorf("a wrong answer: %v", err)
	}
	wrong.method = "/bench.Echo/Nothing"
	if _, err := wrong.load(t.Context(), addr, 8, 50, 50*time.Millisecond); err == nil {
		t.Error("a method that is not there is answered")
	}
}

func listens(t *testing.T, addr string) (err error) {
	var d net.Dialer
	for range 6000 {
		var c net.Conn
		if c, err = d.DialContext(t.Context(), "tcp", addr); err == nil {
			return c.Close()
		}
		time.Sleep(5 * time.Millisecond)
	}
	return err
}

// TestAnswersAreLookedAt: an answer that admits nothing, or says nothing of a limit,
// ends the run.
func TestAnswersAreLookedAt(t *testing.T) {
	keys := []string{"a", "b"}
	for name, c := range map[string]struct {
		question question
		answer   proto.Message
		right    bool
	}{
		"a verdict":           {askCheck, &headgatev1.Verdict{Allowed: true, Decisions: []*headgatev1.Decision{{}}}, true},
		"a denial":            {askCheck, &headgatev1.Verdict{Decisions: []*headgatev1.Decision{{}}}, false},
		"no decision":         {askCheck, &headgatev1.Verdict{Allowed: true}, false},
		"one result for two":  {askStream, &headgatev1.CheckStreamResponse{Results: []*headgatev1.NumberedResult{{Verdict: &headgatev1.Verdict{Decisions: []*headgatev1.Decision{{}}}}}}, false},
		"a store's decision":  {askTake, &headgatev1.TakeResponse{Decisions: []*headgatev1.StoreDecision{{Allowed: true}}}, true},
		"a store's denial":    {askTake, &headgatev1.TakeResponse{Decisions: []*headgatev1.StoreDecision{{}}}, false},
		"nothing of a stream": {askTakeStream, new(headgatev1.TakeStreamResponse), false},
	} {
		b, err := proto.Marshal(c.answer)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.question.right(b, keys); (err == nil) != c.right {
			t.Errorf("%s: %v", name, err)
		}
	}
}
