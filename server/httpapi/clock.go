package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate/server/decide"
)

// maxAdvance is how far one call may move the clock, and maxClock where all of them may: times in µs
// stay below 2^53, as the algorithms need it.
const maxAdvance = 10 * 365 * 24 * time.Hour

var maxClock = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// serveClock moves a clock that is turned by hand, for tests.
func (h *Handler) serveClock(w http.ResponseWriter, r *http.Request) {
	clock := h.options.Admin.Clock
	if clock == nil {
		writeProblem(w, &problem{Status: http.StatusConflict, Detail: "the clock of this server goes by itself; start a server for tests with --clock manual"})
		return
	}
	if _, p := readQuery(r.URL.RawQuery, noParameters); p != nil {
		writeProblem(w, p)
		return
	}
	var body struct {
		Advance *string `json:"advance"`
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, MaxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil || body.Advance == nil {
		writeProblem(w, &problem{Status: http.StatusBadRequest, Detail: `the body must be an object with "advance" and nothing else, such as {"advance": "15m"}`})
		return
	}
	d, err := time.ParseDuration(*body.Advance)
	switch now := clock(0); { // It is not moved yet.
	case err != nil:
		err = fmt.Errorf("is %q, must be a duration such as 15m, 1h30m or 250ms", *body.Advance)
	case d < 0 || d > maxAdvance:
		err = fmt.Errorf("is %s, must be 0s to %s", *body.Advance, maxAdvance)
	case now.Add(d).After(maxClock):
		err = fmt.Errorf("is %s, but the clock shows %s already and goes up to %s", *body.Advance, now.Format(time.RFC3339), maxClock.Format(time.RFC3339))
	}
	if err != nil {
		var faults decide.Faults
		faults.Add(decide.OutOfRange, decide.Place{Name: "advance"}, "%s", err)
		writeProblem(w, faultsProblem(faults))
		return
	}
	writeJSON(w, encode(map[string]time.Time{"now": clock(d)}))
}
