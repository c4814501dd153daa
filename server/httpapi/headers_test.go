package httpapi

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/httplimit"
)

// A caller that hands headers on to its client gets them of every answer that it
// has asked the status for, and of no other.
func TestHeadersOfAdmitted(t *testing.T) {
	h := New(over(newFake(t)), Options{Dialect: httplimit.RateLimitTriple})
	for _, tt := range []struct {
		path string
		left string
	}{{"/v1/check", ""}, {"/v1/check?status=true", "3"}, {"/v1/peek?status=true", "2"}, {"/v1/peek", ""}} {
		w := post(h, tt.path, fmt.Sprintf(forUser, 1))
		if got := w.Header().Get("RateLimit-Remaining"); w.Code != 200 || got != tt.left {
			t.Errorf("%s: %d, %q left, want %q", tt.path, w.Code, got, tt.left)
		}
	}
}
