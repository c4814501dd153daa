package insightapi

import (
	"bytes"
	"context"
	_ "embed" // for openAPI
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/candidate"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/history"
	"github.com/headgate/headgate/telemetry/insight"
)

// openAPI describes the paths. It is written by the test of this package, with -update.
//
//go:embed openapi.json
var openAPI []byte

// Prefix is what all paths begin with.
const Prefix = "/v1/insight/"

// Options are the settings of a [Handler]. Recorder, Policy and Take are required.
type Options struct {
	Recorder *insight.Recorder
	// Name is the name of this instance, for people.
	Name string
	// Policy returns the policy in force.
	Policy func() decide.Policy
	// Take asks the store for the state of a key, or to reset a key.
	Take func(ctx context.Context, op headgate.Op, checks []headgate.Check) ([]headgate.Decision, error)
	// Store, Changes, Candidate and Gates return what this instance knows of its store, the last
	// changes of the policy, the candidate policy, and what bounds the requests in progress. Each is
	// nil if there is none.
	Store     func(of insight.Range) Store
	Changes   func() []Change
	Candidate func() candidate.Report
	Gates     func() []Gate
	// Outage returns what rules do while the store does not answer, or nil while it answers. Outages
	// returns the last ones, in the order of time. Both are nil for a store that always answers.
	Outage  func() *Outage
	Outages func() []Mark
	// History has what was longer ago than the Recorder keeps. Nil means that there is none.
	History history.Reader
	// Uses returns the keys with the most in progress in this instance, at most the given number, and
	// how many more there are. Nil means that none is known.
	Uses func(most int) (list []Use, more int64)
	// Permits has the permits that several processes share. Nil means that there are none.
	Permits *decide.Permits
	// OwnPermits says that the store of Permits is in this process, so other instances have permits of
	// their own.
	OwnPermits bool
	// Consumers are the programs that consume queues. Nil means that there are none.
	Consumers *Consumers
	// Audit records what people do through the handler. Nil means that nothing is kept.
	Audit *Audit
	// Peers are the other instances; nil means none.
	Peers *Peers
}

// Handler answers the paths below [Prefix]. It is safe for concurrent use.
type Handler struct {
	o      Options
	routes map[string]route
}

type route struct {
	method string
	serve  func(*Handler, *query) (any, *failure)
}

// New returns a handler with the given settings.
func New(o Options) *Handler {
	if o.Audit == nil {
		o.Audit = new(Audit)
	}
	return &Handler{o: o, routes: map[string]route{
		"now":     {http.MethodGet, (*Handler).now},
		"rule":    {http.MethodGet, (*Handler).rule},
		"clients": {http.MethodGet, (*Handler).clients},
		"find":    {http.MethodPost, (*Handler).find},
		"marks":   {http.MethodGet, (*Handler).marks},
		"key":     {http.MethodGet, (*Handler).key},
		"denials": {http.MethodGet, (*Handler).denials},
		"store":   {http.MethodGet, (*Handler).store},
		"policy":  {http.MethodGet, (*Handler).policy},
		"flow":    {http.MethodGet, (*Handler).flow},
		"spent":   {http.MethodGet, (*Handler).spending},
		"audit":   {http.MethodGet, (*Handler).audit},
		"reset":   {http.MethodPost, (*Handler).reset},
		"revoke":  {http.MethodPost, (*Handler).revoke},

		"openapi.json": {http.MethodGet, func(*Handler, *query) (any, *failure) { return json.RawMessage(openAPI), nil }},
	}}
}

// Paths returns the paths that are answered, each with its HTTP method.
func (h *Handler) Paths() map[string]string {
	all := make(map[string]string, len(h.routes))
	for path, route := range h.routes {
		all[Prefix+path] = route.method
	}
	return all
}

// failure is an error answer (RFC 9457).
type failure struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func wrong(status int, detail string) *failure {
	return &failure{http.StatusText(status), status, detail}
}

// query is a request whose common parameters have been read.
type query struct {
	ctx    context.Context
	r      *http.Request
	values url.Values
	path   string
	local  bool // Do not ask other instances.
	live   bool // Do not ask the history.
	of     insight.Range
	limit  int
	body   []byte // of a POST, for other instances
}

// decode reads the body as one JSON object. A field that the object does not have is an error.
func (q *query) decode(into any) error {
	var err error
	if q.body, err = io.ReadAll(q.r.Body); err != nil {
		return err
	}
	strict := json.NewDecoder(bytes.NewReader(q.body))
	strict.DisallowUnknownFields()
	return strict.Decode(into)
}

const (
	defaultRange = 10 * time.Minute
	defaultLimit = 50
	maxLimit     = 500
	maxBody      = 16 << 10
)

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, problem := h.answer(w, r)
	status, kind := http.StatusOK, "application/json"
	if problem != nil {
		answer, status, kind = problem, problem.Status, "application/problem+json"
	}
	text, err := json.Marshal(answer)
	if err != nil {
		// It has only texts, numbers and lists, which can always be encoded.
		panic(err)
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // An error has no consequence: the client may be gone.
}

func (h *Handler) answer(w http.ResponseWriter, r *http.Request) (any, *failure) {
	path := strings.TrimPrefix(r.URL.Path, Prefix)
	to, ok := h.routes[path]
	switch {
	case !ok:
		return nil, wrong(http.StatusNotFound, "there is nothing at this path; /v1/insight/openapi.json lists what there is")
	case r.Method != to.method && (r.Method != http.MethodHead || to.method != http.MethodGet):
		w.Header().Set("Allow", to.method)
		return nil, wrong(http.StatusMethodNotAllowed, "this path takes "+to.method)
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, wrong(http.StatusBadRequest, "the query is not understood; it may have escapes that are not complete")
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	q := &query{ctx: r.Context(), r: r, values: values, path: path, local: values.Get("instances") == "this", of: insight.Last(defaultRange), limit: defaultLimit}
	if text := values.Get("range"); text != "" {
		if q.of.Of, err = time.ParseDuration(text); err != nil || q.of.Of < time.Minute || q.of.Of > history.Kept {
			return nil, wrong(http.StatusBadRequest, "range must be a duration from 1m to 168h, such as 10m")
		}
	}
	if text := values.Get("until"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if q.of.Until = time.Unix(seconds, 0); err != nil || seconds <= 0 {
			return nil, wrong(http.StatusBadRequest, "until must be a time in seconds since 1970")
		}
	}
	if text := values.Get("limit"); text != "" {
		if q.limit, err = strconv.Atoi(text); err != nil || q.limit < 1 || q.limit > maxLimit {
			return nil, wrong(http.StatusBadRequest, "limit must be a number from 1 to "+strconv.Itoa(maxLimit))
		}
	}
	h.pin(q)
	return to.serve(h, q)
}

// Now is the answer to GET now.
type Now struct {
	insight.Overview
	// Outage says what rules do while the store does not answer an instance, or is nil.
	Outage    *Outage    `json:"outage"`
	Past      *Past      `json:"past"`
	Instances []Instance `json:"instances"`
	Range     string     `json:"range"`
}

// nowPart is what one instance answers to another.
type nowPart struct {
	insight.Overview
	Outage *Outage `json:"outage"`
}

func (h *Handler) now(q *query) (any, *failure) {
	own := nowPart{h.o.Recorder.Overview(q.of, q.limit), h.outage()}
	told, past := h.past(q, "", func(past insight.Past) { own.Extend(past, q.limit) })
	parts, instances := ask[nowPart](h, q)
	for _, p := range parts {
		own.Merge(p.Overview, q.limit)
		if own.Outage == nil {
			own.Outage = p.Outage
		}
	}
	past()
	return h.whole(q, own, func() any { return Now{own.Overview, own.Outage, told, instances, q.of.Of.String()} })
}

// outage returns what rules do while the store does not answer, or nil while it answers.
func (h *Handler) outage() *Outage {
	if h.o.Outage == nil {
		return nil
	}
	return h.o.Outage()
}

// RuleReport is the answer to GET rule.
type RuleReport struct {
	insight.Rule
	// Policy is the rule as it is in force, or nil if the policy does not have it.
	Policy *ShownRule `json:"policy"`
	// Says is how the denials are spread, in words, or "".
	Says string `json:"says,omitempty"`
	// Does is what the rule does while the store does not answer, or "" while it answers.
	Does      string     `json:"does,omitempty"`
	Past      *Past      `json:"past"`
	Instances []Instance `json:"instances"`
}

func (h *Handler) rule(q *query) (any, *failure) {
	name := q.values.Get("rule")
	if name == "" {
		return nil, wrong(http.StatusBadRequest, "rule is missing; give the name of one")
	}
	own, known := h.o.Recorder.Rule(name, q.of)
	told, past := h.past(q, name, func(past insight.Past) {
		if !known {
			own, known = h.noRule(name), true
		}
		own.Extend(past)
	})
	parts, instances := ask[insight.Rule](h, q)
	for _, p := range parts {
		if p.Rule == "" {
			continue
		}
		if !known {
			own, known = p, true
			continue
		}
		own.Merge(p)
	}
	shown := showRule(h.o.Policy(), name)
	if !known && !q.local {
		if shown == nil {
			return nil, wrong(http.StatusNotFound, "no rule of this name is in force, and none was used lately")
		}
		own = h.noRule(name)
	}
	past()
	return h.whole(q, own, func() any {
		nameKeys(h.o.Policy(), name, own.Tops()...)
		return RuleReport{own, shown, spread(&own.Denied), h.outage().does(name), told, instances}
	})
}

// noRule is the report of a rule of which nothing was counted.
func (h *Handler) noRule(name string) insight.Rule {
	since := h.o.Recorder.Since()
	r := insight.Rule{Rule: name, Since: since.UnixMilli(), Begin: since.Unix(), Minutes: []insight.Minute{}, Limits: []insight.LimitCounts{}, Tiers: []insight.TierCounts{}, Used: []int64{}}
	for _, t := range r.Tops() {
		t.Keys = []insight.Key{}
	}
	return r
}

// spread says whether one client has most of the denials or many have some.
func spread(denied *insight.Top) string {
	keys := denied.Keys
	switch {
	case len(keys) == 0 || denied.Total < 10:
		return ""
	case keys[0].Count*2 > denied.Total:
		return "Most denials go to one key: look at that client."
	case len(keys) >= 10 && keys[0].Count*5 < denied.Total:
		return "The denials are spread over " + strconv.Itoa(len(keys)) + " keys or more: look at the limit, and at what has changed."
	}
	return ""
}

// Clients is the answer to GET clients with a rule.
type Clients struct {
	insight.Heat
	Instances []Instance `json:"instances"`
}

func (h *Handler) clients(q *query) (any, *failure) {
	name := q.values.Get("rule")
	if name == "" {
		return nil, wrong(http.StatusBadRequest, "rule is missing; give the name of one, or ask find for clients of all rules")
	}
	own, _ := h.o.Recorder.Heat(name, q.of, q.limit)
	parts, instances := ask[insight.Heat](h, q)
	for _, p := range parts {
		if own.Begin == 0 {
			own = p
		} else {
			own.Merge(p, q.limit)
		}
	}
	own.Rule = name
	if own.Rows == nil {
		own.Rows = []insight.HeatRow{}
	}
	return h.whole(q, own, func() any {
		p := h.o.Policy()
		for i := range own.Rows {
			own.Rows[i].Known = known(p, name, own.Rows[i].Key.Raw)
		}
		return Clients{own, instances}
	})
}

// Stores is the answer to GET store. Each instance has its own view of the store.
type Stores struct {
	Stores    []Store    `json:"stores"`
	Instances []Instance `json:"instances"`
}

func (h *Handler) store(q *query) (any, *failure) {
	var own Store
	if h.o.Store != nil {
		own = h.o.Store(q.of)
	}
	own.Instance = h.o.Name
	parts, instances := ask[Store](h, q)
	return h.whole(q, own, func() any { return Stores{append([]Store{own}, parts...), instances} })
}

// AuditReport is the answer to GET audit.
type AuditReport struct {
	Entries   []Entry    `json:"entries"`
	Instances []Instance `json:"instances"`
}

func (h *Handler) audit(q *query) (any, *failure) {
	own := h.o.Audit.Entries()
	for i := range own {
		own[i].Instance = h.o.Name
	}
	parts, instances := ask[[]Entry](h, q)
	all := own
	for _, p := range parts {
		all = append(all, p...)
	}
	newestFirst(all)
	return h.whole(q, own, func() any { return AuditReport{all, instances} })
}

// Now returns the answer to GET now, without anything of the history: what the instances remember of the
// last minutes.
func (h *Handler) Now(ctx context.Context, of time.Duration, limit int) Now {
	answer, _ := h.now(&query{ctx: ctx, path: "now", live: true, of: insight.Last(of), limit: limit, values: url.Values{"range": {of.String()}, "limit": {strconv.Itoa(limit)}}})
	now, _ := answer.(Now)
	return now
}

// storeState returns the state of the store as this instance sees it; see [Store].
func (h *Handler) storeState() string {
	if o := h.outage(); o != nil {
		return o.State
	}
	return "ok"
}

// ReloadFailed returns why the last reload of the policy failed, or "" if it did not fail.
func (h *Handler) ReloadFailed() string {
	if h.o.Changes == nil {
		return ""
	}
	if c := h.o.Changes(); len(c) > 0 {
		return c[0].Failed
	}
	return ""
}
