package client

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
)

// TestPoison: a question that cannot be sent, or that no server takes, is answered by
// itself, and the others on the stream do not notice.
func TestPoison(t *testing.T) {
	notText := "\xff"
	for name, c := range map[string]struct {
		request *headgatev1.CheckRequest
		want    error
	}{
		"a value":   {&headgatev1.CheckRequest{Entries: map[string]string{"a": notText}}, headgate.ErrInvalid},
		"a name":    {&headgatev1.CheckRequest{Entries: map[string]string{notText: "a"}}, headgate.ErrInvalid},
		"a rule":    {&headgatev1.CheckRequest{Checks: []*headgatev1.Check{{Rule: "a"}, {Rule: notText}}}, headgate.ErrInvalid},
		"a key":     {&headgatev1.CheckRequest{Checks: []*headgatev1.Check{{Rule: "a", Key: notText}}}, headgate.ErrInvalid},
		"an id":     {&headgatev1.CheckRequest{Id: notText}, headgate.ErrInvalid},
		"too large": {&headgatev1.CheckRequest{Entries: map[string]string{"a": strings.Repeat("x", 2<<20)}}, headgate.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, grpc.MaxRecvMsgSize(1<<20))
			client := dial(t, f, StreamFrom(1))
			eventually(t, "a call over a stream", func() bool {
				if _, err := client.Check(t.Context(), check(1)); err != nil {
					t.Fatal(err)
				}
				return f.numbers().over > 0
			})
			allAtOnce(8, func(i int) {
				for n := range 50 {
					if i == 0 && n%10 == 0 {
						if _, err := client.Check(t.Context(), c.request); !errors.Is(err, c.want) {
							t.Errorf("got %v, want %v", err, c.want)
						}
						continue
					}
					if v, err := client.Check(t.Context(), check(n)); err != nil || v.GetAt() != int64(n) {
						t.Errorf("another call: %v, %v", v, err)
						return
					}
				}
			})
			if n := f.numbers(); n.streams != 1 {
				t.Errorf("there were %d streams", n.streams)
			}
		})
	}
}

// TestText: what cannot be sent is a mistake of the request, whatever is asked.
func TestText(t *testing.T) {
	f := newFake(t)
	c := dial(t, f, NoStreams())
	entries := map[string]string{"user": "J\xf6rg"}
	for name, err := range map[string]error{
		"check":   second(c.Check(t.Context(), &headgatev1.CheckRequest{Entries: entries})),
		"batch":   second(c.CheckBatch(t.Context(), []*headgatev1.CheckRequest{check(1), {Entries: entries}})),
		"peek":    second(c.Peek(t.Context(), &headgatev1.PeekRequest{Entries: entries})),
		"refund":  second(c.Refund(t.Context(), &headgatev1.RefundRequest{Entries: entries})),
		"reset":   second(c.Reset(t.Context(), &headgatev1.ResetRequest{Entries: entries})),
		"explain": second(c.Explain(t.Context(), &headgatev1.ExplainRequest{Entries: entries})),
		"reserve": second(c.Reserve(t.Context(), &headgatev1.ReserveRequest{Entries: entries})),
	} {
		if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), `the value of the entry "user" is not UTF-8`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := f.numbers(); n.calls != 0 {
		t.Errorf("the server was asked %d times", n.calls)
	}
}

// TestHeavyBatch: a batch goes in as many calls as its size needs.
func TestHeavyBatch(t *testing.T) {
	f := newFake(t, grpc.MaxRecvMsgSize(1<<20))
	c := dial(t, f)
	requests := make([]*headgatev1.CheckRequest, 2*MaxBatch)
	for i := range requests {
		requests[i] = check(i % 4)
		requests[i].Entries["path"] = strings.Repeat("x", 8<<10)
	}
	results, err := c.CheckBatch(t.Context(), requests)
	if err != nil || len(results) != len(requests) {
		t.Fatalf("%d results for %d requests, %v", len(results), len(requests), err)
	}
	for i, r := range results {
		if r.GetVerdict().GetAt() != int64(i%4) {
			t.Errorf("result %d is %v", i, r)
		}
	}
}
