package forwardauth

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy"
)

// terms are the settings from the parameters: which headers describe a request, and how it is
// denied. They are immutable.
type terms struct {
	// The names of headers are in canonical form.
	method, uri string
	host        string // or "" for none
	ip          string
	resolver    *httplimit.Resolver
	// peers finds the client's address from the peer of the connection that Envoy names. It is nil if
	// the parameters name the header with the address.
	peers *httplimit.Resolver
	// overHTTP are the given parameters that have a meaning only for proxies that ask over HTTP.
	overHTTP []string
	keys     identity.Keys // the headers with an API key
	entries  []fromHeader
	// single are the headers that identify the client: those of keys and entries.
	single identity.Keys
	route  string // or "": found by the policy's patterns
	cost   int64
	// maxDelay is the longest time that an answer is held, or 0 if the parameters do not set one.
	maxDelay time.Duration
	denied   int // the status of a denial
	forms    spelling.Forms
	// joined says that the proxy joins several lines of one header with commas.
	joined bool
}

// fromHeader is an entry that is taken from a header.
type fromHeader struct{ entry, header string }

// The bounds on the parameters.
const (
	// maxText is the maximum length of all parameters together, in bytes.
	maxText = 4096
	// maxNamed is the maximum number of headers that key and entry may each name.
	maxNamed = 16
)

// own are the entries that every request has by itself.
var own = []string{"api_key", "ip", "route", "method", "host", "path"}

// parameters has, for each parameter, the function that reads it.
var parameters = map[string]func(r *reader, text string){
	"method": func(r *reader, text string) { r.method = r.header(text) },
	"uri":    func(r *reader, text string) { r.uri = r.header(text) },
	"host": func(r *reader, text string) {
		if r.host = ""; text != "" {
			r.host = r.header(text)
		}
	},
	"ip":    func(r *reader, text string) { r.ip = r.header(text) },
	"trust": func(r *reader, text string) { r.trust = strings.Split(text, ",") },
	"key":   (*reader).readKeys,
	"entry": (*reader).readEntry,
	"route": func(r *reader, text string) {
		if r.route = text; text == "" || len(text) > policy.MaxValue {
			r.bad("has %d bytes, must have 1 to %d", len(text), policy.MaxValue)
		}
	},
	"cost": func(r *reader, text string) {
		n, err := strconv.ParseInt(text, 10, 64)
		if r.cost = n; err != nil || n < 1 || n > headgate.MaxCount {
			r.bad("is %q, must be a whole number from 1 to %d", text, int64(headgate.MaxCount))
		}
	},
	"max_delay": func(r *reader, text string) {
		d, err := time.ParseDuration(text)
		if r.maxDelay = d; err != nil || d < time.Millisecond || d > LongestMaxDelay {
			r.bad("is %q, must be a time from 1ms to 1m, such as 5s", text)
		}
	},
	"paths": func(r *reader, text string) {
		var problem string
		if r.forms, problem = spelling.ParseForms(strings.Split(text, ",")); problem != "" {
			r.bad("is wrong: %s", problem)
		}
	},
	"lines": func(r *reader, text string) {
		if r.joined = text == "joined"; !r.joined {
			r.bad("is %q, must be joined", text)
		}
	},
	"denied": func(r *reader, text string) {
		r.denied, _ = strconv.Atoi(text)
		if !slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests}, r.denied) {
			r.bad("is %q, must be 401, 403 or 429", text)
		}
	},
}

// reader reads the parameters and collects their mistakes.
type reader struct {
	terms
	trust    []string
	name     string // of the parameter that is being read
	problems []string
}

// readTerms reads the parameters in a text. The problems are all mistakes in them.
func readTerms(text string) (t *terms, problems []string) {
	if len(text) > maxText {
		return nil, []string{fmt.Sprintf("the parameters have %d bytes, may have %d", len(text), maxText)}
	}
	values, err := url.ParseQuery(text)
	if err != nil {
		return nil, []string{fmt.Sprintf("the parameters cannot be read: %v", err)}
	}
	r := &reader{terms: terms{
		method: "X-Forwarded-Method", uri: "X-Forwarded-Uri", host: "X-Forwarded-Host", ip: string(httplimit.XForwardedFor),
		cost: 1, denied: http.StatusTooManyRequests,
	}}
	for _, name := range []string{"method", "uri", "host", "denied"} {
		if values.Has(name) {
			r.overHTTP = append(r.overHTTP, name)
		}
	}
	for _, r.name = range slices.Sorted(maps.Keys(values)) {
		read, list := parameters[r.name], values[r.name]
		switch {
		case read == nil:
			r.bad("is not a parameter; the parameters are %s", strings.Join(slices.Sorted(maps.Keys(parameters)), ", "))
			continue
		case len(list) > 1 && r.name != "entry":
			r.bad("is given %d times", len(list))
		}
		for _, text := range list {
			read(r, text)
		}
	}
	if !values.Has("key") {
		r.readKeys(identity.Authorization + ",X-Api-Key")
	}
	if r.problems == nil {
		r.newResolver()
	}
	if r.problems == nil && !values.Has("ip") {
		r.newPeers()
	}
	return &r.terms, r.problems
}

func (r *reader) bad(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf("%q ", r.name)+fmt.Sprintf(format, args...))
}

// header reads the name of a header.
func (r *reader) header(text string) string {
	for i := range len(text) {
		if c := text[i] | 0x20; (c < 'a' || c > 'z') && (text[i] < '0' || text[i] > '9') && text[i] != '-' && text[i] != '_' {
			r.bad("is %q, must be the name of a header", text)
			return ""
		}
	}
	if text == "" {
		r.bad("is empty, must be the name of a header")
	}
	return http.CanonicalHeaderKey(text)
}

func (r *reader) readKeys(text string) {
	if n := 1 + strings.Count(text, ","); n > maxNamed {
		r.bad("names %d headers, may name %d", n, maxNamed)
	}
	for name := range strings.SplitSeq(text, ",") {
		if problem := r.keys.Add(name, http.CanonicalHeaderKey); problem != "" {
			r.bad("is wrong: %s", problem)
		}
		_ = r.single.Add(name, http.CanonicalHeaderKey) // It has the same problem.
	}
}

// readEntry reads an entry and its header, such as "user:X-Auth-User".
func (r *reader) readEntry(text string) {
	name, header, ok := strings.Cut(text, ":")
	switch {
	case !ok || name == "" || len(name) > policy.MaxName:
		r.bad("is %q, must be an entry and a header such as user:X-Auth-User", text)
		return
	case slices.Contains(own, name):
		r.bad("is %q: every request has the entry %s by itself", text, name)
	case slices.ContainsFunc(r.entries, func(e fromHeader) bool { return e.entry == name }):
		r.bad("gives the entry %s twice", name)
	case len(r.entries) == maxNamed:
		r.bad("is given more than %d times", maxNamed)
		return
	}
	r.entries = append(r.entries, fromHeader{name, r.header(header)})
	_ = r.single.Add(header, http.CanonicalHeaderKey) // A wrong name is a problem already.
}

// newResolver makes the resolver of clients' addresses. The proxy that asks is trusted, whatever
// its own address is: [terms.asked] presents it as a peer on a Unix socket, which has no address.
func (r *reader) newResolver() {
	r.name = "trust"
	r.resolver = r.resolve(append(slices.Clone(r.trust), "unix"))
}

// newPeers makes the resolver that starts from the peer of the client's connection.
func (r *reader) newPeers() {
	if r.peers = new(httplimit.Resolver); r.trust != nil {
		r.peers = r.resolve(r.trust)
	}
}

// resolve makes a resolver, or adds the problems.
func (r *reader) resolve(trust []string) *httplimit.Resolver {
	resolver, err := httplimit.NewResolver(httplimit.Source(r.ip), trust...)
	if err == nil {
		return resolver
	}
	if invalid, ok := errors.AsType[*headgate.InvalidError](err); ok {
		for _, p := range invalid.Problems {
			r.bad("is wrong: %s", p.Text)
		}
		return nil
	}
	r.bad("is wrong: %v", err)
	return nil
}
