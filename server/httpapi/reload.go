package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/server/decide"
)

// Admin has the functions that are only for operators of the service.
type Admin struct {
	// Token is what operators must send, as "Authorization: Bearer TOKEN". If it is empty, the paths
	// that need it are closed to everybody.
	Token string
	// Reload loads the policy again, on behalf of a caller at the address from. It returns the policy
	// that is in force afterwards, and whether it has changed. An error is a [*ReloadError].
	Reload func(from string) (now decide.Policy, changed bool, err error)
	// Clock moves the clock of a server for tests forward, and returns the time that it shows then. Nil
	// means that the clock goes by itself.
	Clock func(time.Duration) time.Time
	// Candidate returns what is known of the candidate policy, as a value that encodes to JSON. It
	// includes the keys of clients if keys is true. Nil means that there is no candidate.
	Candidate func(keys bool) any
	// Insight answers who uses what, and who is denied and why. Nil means that there are no such
	// paths.
	Insight Insight
}

// Insight is a handler that adds paths to the API, all with the admin token.
type Insight interface {
	http.Handler
	// Paths returns the paths, each with its HTTP method.
	Paths() map[string]string
}

// admins returns a handler that calls serve only for requests with the admin token.
func admins(serve func(*Handler, http.ResponseWriter, *http.Request)) func(*Handler, http.ResponseWriter, *http.Request) {
	return func(h *Handler, w http.ResponseWriter, r *http.Request) {
		switch token := h.options.Admin.Token; {
		case token == "":
			writeProblem(w, &problem{Status: http.StatusForbidden, Detail: "nobody may ask for this here: the server has no admin token"})
		case !authorized(r.Header["Authorization"], token):
			writeUnauthorized(w, r.Header["Authorization"])
		default:
			serve(h, w, r)
		}
	}
}

// ReloadError says why a reload failed, so that the policy in force stays in force.
type ReloadError struct {
	// Fixed says that there is no file to reload.
	Fixed bool
	// Detail says what is wrong, in one sentence.
	Detail string
	// Mistakes are the mistakes in the policy files.
	Mistakes []PolicyMistake
}

// PolicyMistake is one mistake in a policy file.
type PolicyMistake struct {
	File string `json:"file"`
	// Line and Column count from 1. Both are zero if the mistake has no single place.
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Detail string `json:"detail"`
}

// Error says what is wrong.
func (e *ReloadError) Error() string { return "headgate: " + e.Detail }

// serveReload loads the policy again.
func (h *Handler) serveReload(w http.ResponseWriter, r *http.Request) {
	if h.options.Admin.Token == "" || h.options.Admin.Reload == nil {
		writeProblem(w, &problem{Status: http.StatusForbidden, Detail: "nobody may ask for this here: the server has no admin token; a change of the policy file is noticed without being asked, and so is SIGHUP"})
		return
	}
	if !authorized(r.Header["Authorization"], h.options.Admin.Token) {
		writeUnauthorized(w, r.Header["Authorization"])
		return
	}
	if _, p := readQuery(r.URL.RawQuery, noParameters); p != nil {
		writeProblem(w, p)
		return
	}
	now, changed, err := h.options.Admin.Reload(r.RemoteAddr)
	if err != nil {
		writeReloadProblem(w, err, now)
		return
	}
	result := "unchanged"
	if changed {
		result = "changed"
	}
	writeJSON(w, encode(struct {
		Result string `json:"result"`
		version
		Rules int `json:"rules"`
	}{result, versionOf(now), len(now.Rules())}))
}

// authorized reports whether the header has the token. The time it takes reveals nothing about the
// token, not even its length.
func authorized(header []string, token string) bool {
	if len(header) != 1 {
		return false
	}
	scheme, shown, _ := strings.Cut(header[0], " ")
	given, want := sha256.Sum256([]byte(strings.TrimLeft(shown, " "))), sha256.Sum256([]byte(token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(given[:], want[:]) == 1
}

// version has the members that identify a policy.
type version struct {
	Version int64  `json:"version"`
	Hash    string `json:"hash"`
}

func versionOf(p decide.Policy) version { return version{p.Version, p.Hash} }

// writeReloadProblem answers that the reload failed, and which policy stays in force.
func writeReloadProblem(w http.ResponseWriter, err error, kept decide.Policy) {
	var why *ReloadError
	if !errors.As(err, &why) {
		why = &ReloadError{Detail: errtext.Text(err)}
	}
	p := &problem{Status: http.StatusUnprocessableEntity, Detail: fmt.Sprintf("%s; version %d stays in force", why.Detail, kept.Version)}
	if why.Fixed {
		p.Status = http.StatusConflict
	}
	writeWith(w, p, struct {
		*problem
		version
		Mistakes []PolicyMistake `json:"mistakes,omitempty"`
	}{p, versionOf(kept), why.Mistakes})
}
