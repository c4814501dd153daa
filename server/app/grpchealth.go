package app

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// grpcHealth says over gRPC what /readyz says over HTTP. The answer is the same for the server ("")
// and for each of its services.
type grpcHealth struct {
	grpc_health_v1.UnimplementedHealthServer
	ready    func(context.Context) error
	services map[string]bool
	every    time.Duration

	// ending is closed when the server is shut down. Calls of Watch then end, which would otherwise
	// keep the server from ending.
	ending <-chan struct{}
}

const (
	// readyWithin is how long the store may take to answer a health check.
	readyWithin = time.Second
	// healthEvery is how often Watch looks.
	healthEvery = time.Second
)

func newGRPCHealth(ready func(context.Context) error, ending <-chan struct{}) *grpcHealth {
	return &grpcHealth{ready: ready, services: map[string]bool{"": true}, every: healthEvery, ending: ending}
}

func (h *grpcHealth) status(ctx context.Context) grpc_health_v1.HealthCheckResponse_ServingStatus {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if h.ready(ctx) != nil {
		return grpc_health_v1.HealthCheckResponse_NOT_SERVING
	}
	return grpc_health_v1.HealthCheckResponse_SERVING
}

// Check implements the service.
func (h *grpcHealth) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if !h.services[r.GetService()] {
		return nil, status.Error(codes.NotFound, "there is no such service; reflection lists what there is")
	}
	return &grpc_health_v1.HealthCheckResponse{Status: h.status(ctx)}, nil
}

// List implements the service.
func (h *grpcHealth) List(ctx context.Context, _ *grpc_health_v1.HealthListRequest) (*grpc_health_v1.HealthListResponse, error) {
	now := &grpc_health_v1.HealthCheckResponse{Status: h.status(ctx)}
	all := &grpc_health_v1.HealthListResponse{Statuses: make(map[string]*grpc_health_v1.HealthCheckResponse, len(h.services))}
	for name := range h.services {
		all.Statuses[name] = now
	}
	return all, nil
}

// Watch implements the service. It ends when the server is shut down.
func (h *grpcHealth) Watch(r *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	ctx := stream.Context()
	ticker := time.NewTicker(h.every)
	defer ticker.Stop()
	last := grpc_health_v1.HealthCheckResponse_UNKNOWN
	for {
		now := grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN
		if h.services[r.GetService()] {
			now = h.status(ctx)
		}
		if now != last {
			last = now
			if err := stream.Send(&grpc_health_v1.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-h.ending:
			return stream.Send(&grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING})
		case <-ticker.C:
		}
	}
}
