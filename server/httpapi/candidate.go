package httpapi

import (
	"net/http"

	"github.com/headgate/headgate"
)

// serveCandidate answers what is known of the candidate policy: figures for everybody, and the keys
// of clients only with the admin token.
func (h *Handler) serveCandidate(w http.ResponseWriter, r *http.Request) {
	admin := h.options.Admin
	shown := r.Header["Authorization"]
	switch {
	case admin.Candidate == nil:
		writeProblem(w, &problem{Status: http.StatusNotFound, Detail: "no candidate is tried here; start the server with --candidate FILE"})
		return
	case admin.Token != "" && len(shown) > 0 && !authorized(shown, admin.Token):
		writeUnauthorized(w, shown)
		return
	}
	// This path has no query parameters.
	if _, p := readQuery(r.URL.RawQuery, headgate.OpReset); p != nil {
		writeProblem(w, p)
		return
	}
	w.Header()["Cache-Control"] = []string{"no-store"}
	writeJSON(w, encode(admin.Candidate(admin.Token != "" && len(shown) > 0)))
}

// writeUnauthorized distinguishes a missing token from a wrong one, because the remedies differ.
func writeUnauthorized(w http.ResponseWriter, shown []string) {
	detail := "this needs the admin token of the server, as Authorization: Bearer TOKEN"
	if len(shown) == 1 {
		detail = "the header Authorization does not hold the admin token of this server; it must be Bearer TOKEN"
	}
	w.Header()["Www-Authenticate"] = []string{`Bearer realm="headgate"`}
	writeProblem(w, &problem{Status: http.StatusUnauthorized, Detail: detail})
}
