package serverbench

import (
	"errors"
	"net"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

func TestRLSEcho(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	server.RegisterService(&rlsEchoes, nil)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	n, err := askRLSEcho.load(t.Context(), l.Addr().String(), 8, 10, 50*time.Millisecond)
	if n == 0 || err != nil {
		t.Errorf("%d answers, %v", n, err)
	}
	server.Stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRLSAnswersAreLookedAt(t *testing.T) {
	limit := &pb.RateLimitResponse_RateLimit{RequestsPerUnit: 1_000_000}
	for name, tt := range map[string]struct {
		answer *pb.RateLimitResponse
		right  bool
	}{
		"right":     {&pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK, Statuses: []*pb.RateLimitResponse_DescriptorStatus{{CurrentLimit: limit}}}, true},
		"denied":    {&pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OVER_LIMIT, Statuses: []*pb.RateLimitResponse_DescriptorStatus{{CurrentLimit: limit}}}, false},
		"unlimited": {&pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK, Statuses: []*pb.RateLimitResponse_DescriptorStatus{{}}}, false},
		"empty":     {&pb.RateLimitResponse{}, false},
	} {
		b, err := proto.Marshal(tt.answer)
		if err != nil {
			t.Fatal(err)
		}
		if err := askRLS.right(b, []string{"k"}); (err == nil) != tt.right || err != nil && !errors.Is(err, errAnswer) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
