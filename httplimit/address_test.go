package httplimit

import (
	"errors"
	"net/http"
	"testing"

	"github.com/headgate/headgate"
)

// TestResolver: what is read from a request. How it is understood, package identity tests.
func TestResolver(t *testing.T) {
	t.Parallel()
	behind, err := NewResolver("x-real-ip", "10.0.0.0/8")
	if err != nil || behind.Source() != "X-Real-Ip" {
		t.Fatalf("source %q, %v", behind.Source(), err)
	}
	for _, tt := range []struct {
		res     *Resolver
		remote  string
		client  string
		trusted bool
	}{
		{behind, "10.0.0.1:1", "192.0.2.7", true},
		{behind, "203.0.113.7:1", "203.0.113.7", false},
		{new(Resolver), "10.0.0.1:1", "10.0.0.1", false},
	} {
		r := &http.Request{RemoteAddr: tt.remote, Header: http.Header{"X-Real-Ip": {"192.0.2.7"}}}
		if a, ok := tt.res.Client(r); !ok || a.String() != tt.client || tt.res.Trusts(r) != tt.trusted {
			t.Errorf("from %s: client %v, %t, trusted %t", tt.remote, a, ok, tt.res.Trusts(r))
		}
	}
	_, err = NewResolver("", "x", "y")
	var invalid *headgate.InvalidError
	if !errors.As(err, &invalid) || len(invalid.Problems) != 3 {
		t.Errorf("not all mistakes at once: %v", err)
	}
}
