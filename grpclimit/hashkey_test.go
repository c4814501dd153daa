package grpclimit

import (
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
)

// TestOldHashKey: while the hash key is being changed, two nodes with either key
// admit what one would.
func TestOldHashKey(t *testing.T) {
	before, after := []byte("0123456789abcdef"), []byte("fedcba9876543210")
	store := stopped()
	limit := Limit(ByAPIKey(), headgate.MustRule("key", headgate.Sliding(4, time.Hour)))
	nodes := []testpb.TestServiceClient{
		limited(t, store, new(service), limit, HashKey(before)),
		limited(t, store, new(service), limit, HashKey(after), OldHashKey(before)),
	}
	served := 0
	for i := range 10 {
		_, err := nodes[i%2].UnaryCall(metadata.AppendToOutgoingContext(t.Context(), "x-api-key", "k1"), new(testpb.SimpleRequest), grpc.WaitForReady(true))
		switch code := status.Code(err); code {
		case codes.OK:
			served++
		case codes.ResourceExhausted:
		default:
			t.Fatal(err)
		}
	}
	if served != 4 {
		t.Errorf("%d were served, want 4", served)
	}
	if _, err := NewServer(store, limit, OldHashKey([]byte("short"))); err == nil {
		t.Error("a short key is taken")
	}
}
