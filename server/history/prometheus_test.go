package history_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate/headgate/server/history"
)

// What answers in the place of Prometheus may send series without values.
func TestSeriesWithoutValues(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"status":"success","data":{"result":[{"metric":{"hash":"x"}},{"metric":{},"values":[]}]}}`)
	}))
	defer srv.Close()
	defer srv.Client().CloseIdleConnections()
	p := history.NewPrometheus(srv.URL, srv.Client())
	until := time.Unix(1_763_712_000, 0)
	if marks, err := p.Marks(t.Context(), until.Add(-24*time.Hour), until); len(marks) != 0 || err != nil {
		t.Errorf("marks %v, %v", marks, err)
	}
	if past, err := p.Read(t.Context(), history.Question{From: until.Add(-24 * time.Hour), Until: until, Step: time.Hour}); len(past.Minutes) != 24 || len(past.Rules) != 0 || err != nil {
		t.Errorf("%+v, %v", past, err)
	}
}
