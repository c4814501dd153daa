package grpclimit

import (
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// TestMessages: a stream is one call, and each of its messages is counted besides.
func TestMessages(t *testing.T) {
	s := new(service)
	api := limited(t, stopped(), s, Limit(Everyone(), headgate.MustRule("calls", headgate.Per(2, time.Hour))),
		MessageLimit(ByMethod(), headgate.MustRule("messages", headgate.Per(3, time.Hour))))
	stream := exchange(t, api, 3)
	if err := stream.Send(new(testpb.StreamingOutputCallRequest)); err != nil {
		t.Fatal(err)
	}
	_, err := stream.Recv()
	if code, reason, delay := said(err); code != codes.ResourceExhausted || reason != ReasonExhausted || delay != 20*time.Minute {
		t.Errorf("the fourth message: %v, retry in %v", err, delay)
	}
	if got := stream.Trailer().Get("retry-after"); len(got) != 1 || got[0] != "1200" {
		t.Errorf("the trailers are %v", stream.Trailer())
	}
	// The other limit counts streams.
	if err := call(t, api); err != nil {
		t.Errorf("a second call: %v", err)
	}
	if err := call(t, api); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a third call: %v", err)
	}
}

func TestMessageCost(t *testing.T) {
	api := limited(t, stopped(), new(service), MessageLimit(Everyone(), headgate.MustRule("bytes", headgate.Per(100, time.Hour))),
		MessageCost(func(c *Call) int64 {
			return int64(len(c.Message.(*testpb.StreamingOutputCallRequest).GetPayload().GetBody()))
		}))
	stream := exchange(t, api, 20) // of nothing
	send := func(n int) error {
		if err := stream.Send(&testpb.StreamingOutputCallRequest{Payload: &testpb.Payload{Body: make([]byte, n)}}); err != nil {
			return err
		}
		_, err := stream.Recv()
		return err
	}
	if err := errors.Join(send(60), send(40)); err != nil {
		t.Fatal(err)
	}
	if err := send(1); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("byte 101: %v", err)
	}
	broken := limited(t, stopped(), new(service), MessageLimit(Everyone(), one("r")), MessageCost(func(*Call) int64 { return -1 }))
	stream = exchange(t, broken, 0)
	if err := send(0); status.Code(err) != codes.Internal {
		t.Errorf("a cost that cannot be: %v", err)
	}
}

// TestHoldMessages: messages wait for their units, and the stream goes on.
func TestHoldMessages(t *testing.T) {
	api := limited(t, memory.New(), new(service), HoldMessages(10*time.Second),
		MessageLimit(Everyone(), headgate.MustRule("r", headgate.Per(1, 20*time.Millisecond))))
	stream := exchange(t, api, 5)
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
	// No longer than it may.
	api = limited(t, memory.New(), new(service), HoldMessages(10*time.Millisecond), MessageLimit(Everyone(), one("r")))
	stream = exchange(t, api, 1)
	if err := stream.Send(new(testpb.StreamingOutputCallRequest)); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message that would wait for an hour: %v", err)
	}
}

func TestMessagesWithoutStore(t *testing.T) {
	down := failing{headgate.ErrUnavailable}
	exchange(t, limited(t, down, new(service), MessageLimit(Everyone(), one("r"))), 3)
	stream := exchange(t, limited(t, down, new(service), MessageLimit(Everyone(), one("r")), OnStoreError(FailClosed)), 0)
	if err := stream.Send(new(testpb.StreamingOutputCallRequest)); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("closed: %v", err)
	}
}
