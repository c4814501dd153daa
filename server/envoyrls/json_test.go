package envoyrls

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// TestJSON: the request and the answer are those of the service, in protobuf's JSON.
func TestJSON(t *testing.T) {
	const asks = `{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"x"}]}],"hitsAddend":4}`
	for _, tt := range []struct {
		name   string
		bodies []string
		broken bool
		status int
		want   string
	}{
		{"within", []string{asks}, false, http.StatusOK, "OK OK:6"},
		{"over", []string{asks, asks, asks}, false, http.StatusTooManyRequests, "OVER OVER:2"},
		{"names as in protobuf", []string{`{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"x"}],"hits_addend":"3"}]}`}, false, http.StatusOK, "OK OK:7"},
		{"no domain", []string{`{"descriptors":[{"entries":[{"key":"a","value":"x"}]}]}`}, false, http.StatusBadRequest, "the domain is empty"},
		{"nothing", []string{``}, false, http.StatusBadRequest, "is not a RateLimitRequest"},
		{"another field", []string{`{"domains":"d"}`}, false, http.StatusBadRequest, "is not a RateLimitRequest"},
		{"too large", []string{strings.Repeat(" ", maxJSON+1)}, false, http.StatusRequestEntityTooLarge, "could not be read"},
		{"without the store", []string{asks}, true, http.StatusServiceUnavailable, "the store did not answer"},
	} {
		s := newStage(t, envoyPolicy(t, tenAndFive), Options{})
		s.broken.Store(tt.broken)
		var w *httptest.ResponseRecorder
		for _, body := range tt.bodies {
			w = httptest.NewRecorder()
			s.service.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(body)))
		}
		got := strings.TrimSpace(w.Body.String())
		if answer := new(pb.RateLimitResponse); w.Header().Get("Content-Type") == "application/json" {
			if err := protojson.Unmarshal(w.Body.Bytes(), answer); err != nil {
				t.Errorf("%s: %v in %s", tt.name, err, got)
			}
			got = line(answer)
		}
		if w.Code != tt.status || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %d %q, want %d %q", tt.name, w.Code, got, tt.status, tt.want)
		}
	}
}
