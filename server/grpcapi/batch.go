package grpcapi

import (
	"context"
	"fmt"

	"google.golang.org/grpc/status"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/server/decide"
)

// CheckBatch implements the service.
func (s *Service) CheckBatch(ctx context.Context, r *headgatev1.CheckBatchRequest) (*headgatev1.CheckBatchResponse, error) {
	n := len(r.GetRequests())
	if n == 0 || n > MaxTogether {
		return nil, faultsStatus(decide.Faults{{Kind: decide.OutOfRange, Place: decide.Place{Name: "requests"}, Text: fmt.Sprintf("has %d requests, must have 1 to %d", n, MaxTogether)}})
	}
	results := make([]*headgatev1.CheckResult, n)
	one := func(i int) {
		v, err := s.Check(ctx, r.GetRequests()[i])
		results[i] = &headgatev1.CheckResult{Verdict: v}
		if err != nil {
			results[i].Error = status.Convert(err).Proto()
		}
	}
	if s.options.SideBySide {
		sideBySide(s.permits, n, one)
	} else {
		for i := range n {
			one(i)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, failed(ctx, err)
	}
	return &headgatev1.CheckBatchResponse{Results: results}, nil
}
