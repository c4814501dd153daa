package envoyrls

import (
	"context"
	"net/http"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/memory"
)

func benchService(tb testing.TB) (*Service, []byte) {
	policy := envoyPolicy(tb, `
domain: d
descriptors:
  - key: path
    descriptors:
      - {key: user, rate_limit: {unit: day, requests_per_unit: 1000000000}}
`)
	s := New(&decide.Over{Rules: func() decide.Policy { return policy }, Store: memory.New()}, Options{})
	wire, err := proto.Marshal(&pb.RateLimitRequest{Domain: "d", Descriptors: ds(d("path=/api/v1/things", "user=anna"))})
	if err != nil {
		tb.Fatal(err)
	}
	return s, wire
}

// once does all that a request costs but for gRPC.
func (s *Service) once(tb testing.TB, q *scratch, wire []byte) {
	if err := q.request.ReadWire(wire); err != nil {
		tb.Fatal(err)
	}
	if _, err := s.answer(context.Background(), q); err != nil {
		tb.Fatal(err)
	}
	q.Reset()
}

func BenchmarkAnswer(b *testing.B) {
	s, wire := benchService(b)
	q := &scratch{header: make(http.Header)}
	b.ReportAllocs()
	for b.Loop() {
		s.once(b, q, wire)
	}
}
