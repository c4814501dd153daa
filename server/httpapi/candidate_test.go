package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// candidateAnswer is a report, with keys or without.
func candidateAnswer(keys bool) string {
	shown := `"keys_hidden":true`
	if keys {
		shown = `"top_newly_denied":[{"rule":"api","key":"anna","count":3}]`
	}
	return fmt.Sprintf(`{"live":{"version":1,"hash":"a","rules":1},"candidate":{"version":1,"hash":"b","rules":1},"since":"2026-11-21T09:30:00Z","counting_since":"2026-11-21T09:30:00Z","counters":"memory","crowded":0,`+
		`"compared":9,"both_admitted":6,"both_denied":0,"newly_denied":3,"newly_admitted":0,"undecidable":0,"not_compared":{"dropped":0,"undecided":0,"unanswered":0},"rules":[{"rule":"api","newly_denied":3,"newly_admitted":0}],%s}`, shown)
}

// TestCandidate: figures for everybody, keys for those with the token, and nothing
// for those with another one.
func TestCandidate(t *testing.T) {
	report := func(keys bool) any { return json.RawMessage(candidateAnswer(keys)) }
	const token = "open sesame open"
	for name, tt := range map[string]struct {
		admin  Admin
		header []string
		status int
		want   string
	}{
		"without a token":           {Admin{Token: token, Candidate: report}, nil, 200, candidateAnswer(false)},
		"with the token":            {Admin{Token: token, Candidate: report}, []string{"Bearer " + token}, 200, candidateAnswer(true)},
		"with another token":        {Admin{Token: token, Candidate: report}, []string{"Bearer x" + token}, 401, "does not hold the admin token of this server"},
		"with two tokens":           {Admin{Token: token, Candidate: report}, []string{"Bearer " + token, "Bearer " + token}, 401, "this needs the admin token"},
		"a server without a token":  {Admin{Candidate: report}, []string{"Bearer " + token}, 200, candidateAnswer(false)},
		"no token, for that server": {Admin{Candidate: report}, []string{"Bearer "}, 200, candidateAnswer(false)},
		"no candidate":              {Admin{Token: token}, []string{"Bearer " + token}, 404, "--candidate FILE"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/v1/candidate", nil)
		r.Header["Authorization"] = tt.header
		w := serve(New(over(newFake(t)), Options{Admin: tt.admin}), r)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if w.Code == 200 && w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: the answer may be stored", name)
		}
	}
}
