package envoyrls

import (
	"context"
	"errors"
	"io"
	"net/http"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/server/wire"
)

// maxJSON is the maximum size of a request's body, in bytes.
const maxJSON = 1 << 20

// ServeHTTP answers a RateLimitRequest in protobuf's JSON, as envoyproxy/ratelimit does at /json.
// The status is 200, or 429 if the request is over a limit, and the body is the RateLimitResponse
// in JSON. If there is no verdict, it answers with an error status and a text.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxJSON))
	if err != nil {
		code := http.StatusBadRequest
		if large := new(http.MaxBytesError); errors.As(err, &large) {
			code = http.StatusRequestEntityTooLarge
		}
		http.Error(w, "the request could not be read", code)
		return
	}
	answer, err := s.fromJSON(r.Context(), body)
	if err != nil {
		http.Error(w, status.Convert(err).Message(), statusOf(err))
		return
	}
	text, err := protojson.Marshal(answer)
	if err != nil {
		http.Error(w, "the answer cannot be written as JSON", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if answer.GetOverallCode() == pb.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	// An error has no consequence: the client may be gone.
	_, _ = w.Write(text)
}

// fromJSON answers a request in JSON. The error is a gRPC status.
func (s *Service) fromJSON(ctx context.Context, body []byte) (*pb.RateLimitResponse, error) {
	request := new(pb.RateLimitRequest)
	if err := protojson.Unmarshal(body, request); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the body is not a RateLimitRequest in JSON: %v", err)
	}
	message, err := proto.Marshal(request)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	got, err := s.calls.Serve(ctx, func(into any) error { return into.(wire.Message).ReadWire(message) }, nil)
	if err != nil {
		return nil, err
	}
	answer := new(pb.RateLimitResponse)
	if err := proto.Unmarshal(got.(wire.Written), answer); err != nil {
		return nil, status.Error(codes.Internal, "the answer cannot be written as JSON")
	}
	return answer, nil
}

// statusOf returns the HTTP status for a gRPC error.
func statusOf(err error) int {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.ResourceExhausted:
		return http.StatusBadRequest
	case codes.Internal:
		return http.StatusInternalServerError
	}
	return http.StatusServiceUnavailable
}
