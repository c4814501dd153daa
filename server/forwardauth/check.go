package forwardauth

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/wire"
)

// checkRequest has those fields of an envoy.service.auth.v3.CheckRequest that matter for the
// decision. Its texts may be any bytes, not only UTF-8.
type checkRequest struct {
	// peer is the address that connected to Envoy, or "@" for a Unix socket.
	peer string
	// http says that the check is about an HTTP request, not about a connection.
	http               bool
	method, path, host string
	// headers have names in lower case. joined says that Envoy has joined lines of one name.
	headers []pair
	joined  bool
	// extensions are the context extensions of Envoy's route.
	extensions []pair
}

type pair struct{ name, value string }

// maxKept is the largest capacity of headers that is kept for the next request.
const maxKept = 256

// reset clears the request, and keeps its memory.
func (c *checkRequest) reset() {
	if cap(c.headers) > maxKept {
		c.headers = nil
	}
	clear(c.headers)
	clear(c.extensions)
	*c = checkRequest{headers: c.headers[:0], extensions: c.extensions[:0]}
}

// ReadWire implements [wire.Message]. The request must be empty or have been reset.
func (c *checkRequest) ReadWire(message []byte) error {
	in := wire.Read(string(message))
	within(&in, func(field protowire.Number, in *wire.Reader) { // CheckRequest
		if field == 1 {
			within(in, c.attribute)
		}
	})
	return in.Err()
}

// within reads a message of which only fields with messages or strings matter. It calls read with a
// reader for each of those.
func within(in *wire.Reader, read func(field protowire.Number, in *wire.Reader)) {
	for {
		field, kind, more := in.Field()
		switch {
		case !more:
			return
		case kind == protowire.BytesType:
			inner := in.Message()
			read(field, &inner)
			in.Leave(&inner)
		default:
			in.Skip(field, kind)
		}
	}
}

// attribute reads a field of an AttributeContext.
func (c *checkRequest) attribute(field protowire.Number, in *wire.Reader) {
	switch field {
	case 1: // source
		within(in, func(field protowire.Number, in *wire.Reader) {
			if field == 1 {
				within(in, c.address)
			}
		})
	case 4: // request
		within(in, func(field protowire.Number, in *wire.Reader) {
			if field == 2 {
				c.http = true
				within(in, c.httpField)
			}
		})
	case 10:
		c.extensions = append(c.extensions, readPair(in))
	}
}

// address reads a field of an envoy.config.core.v3.Address.
func (c *checkRequest) address(field protowire.Number, in *wire.Reader) {
	switch field {
	case 1: // socket_address
		within(in, func(field protowire.Number, in *wire.Reader) {
			if field == 2 {
				c.peer = in.Rest()
			}
		})
	case 2: // pipe
		c.peer = "@"
	}
}

// httpField reads a field of an HttpRequest.
func (c *checkRequest) httpField(field protowire.Number, in *wire.Reader) {
	switch field {
	case 2:
		c.method = in.Rest()
	case 3: // headers
		c.joined = true
		c.headers = append(c.headers, readPair(in))
	case 4:
		c.path = in.Rest()
	case 5:
		c.host = in.Rest()
	case 13: // header_map
		within(in, func(field protowire.Number, in *wire.Reader) {
			if field == 1 {
				c.headers = append(c.headers, readPair(in))
			}
		})
	}
}

// readPair reads an entry of a map, or a HeaderValue, which may have its value as bytes in field 3.
func readPair(in *wire.Reader) (p pair) {
	within(in, func(field protowire.Number, in *wire.Reader) {
		switch field {
		case 1:
			p.name = in.Rest()
		case 2, 3:
			p.value = in.Rest()
		}
	})
	return p
}

// checked returns the question that the CheckRequest describes, or what is wrong with it.
func (t *terms) checked(c *checkRequest) (q question, problems []string) {
	switch {
	case !c.http:
		return q, []string{"the check is not about an HTTP request; the filter must be one for HTTP"}
	case c.method == "":
		return q, []string{"the check has no method"}
	}
	q = question{method: c.method, target: c.path, host: c.host, route: t.route, cost: t.cost, header: make(http.Header)}
	for _, name := range t.overHTTP {
		problems = append(problems, strconv.Quote(name)+" is for proxies that ask over HTTP")
	}
	resolver, peer := t.peers, c.peer
	if resolver == nil {
		resolver, peer = t.resolver, "@"
	}
	source := string(resolver.Source())
	for _, p := range c.headers {
		name := t.single.Has(p.name)
		switch {
		case name != "":
		case strings.EqualFold(p.name, source):
			name = source
		default:
			name = identity.Credential(p.name)
			q.see(t, p.name)
		}
		if name != "" {
			q.header[name] = append(q.header[name], p.value)
		}
	}
	q.client, _ = resolver.Client(&http.Request{RemoteAddr: peer, Header: q.header})
	if c.joined || t.joined {
		q.header = t.apart(q.header)
	}
	for _, p := range c.extensions {
		if problem := t.extend(&q, p); problem != "" {
			problems = append(problems, "the context extension "+strconv.Quote(p.name)+" "+problem)
		}
	}
	return q, problems
}

// extend adds a context extension to the question, and returns what is wrong with it, or "".
func (t *terms) extend(q *question, p pair) (problem string) {
	switch {
	case p.name == "cost":
		n, err := strconv.ParseInt(p.value, 10, 64)
		if q.cost = n; err != nil || n < 1 || n > headgate.MaxCount {
			return "must be a whole number from 1 to " + strconv.Itoa(headgate.MaxCount)
		}
	case len(p.value) > policy.MaxValue:
		return "is longer than " + strconv.Itoa(policy.MaxValue) + " bytes"
	case p.name == "route":
		q.route = p.value
	case p.name == "" || len(p.name) > policy.MaxName:
		return "must have a name of 1 to " + strconv.Itoa(policy.MaxName) + " bytes"
	case slices.Contains(own, p.name):
		return "cannot be set: every request has this entry by itself"
	case slices.ContainsFunc(t.entries, func(e fromHeader) bool { return e.entry == p.name }):
		return "cannot be set: the entry is taken from a header"
	case len(q.given) == maxNamed:
		return "is one of more than " + strconv.Itoa(maxNamed)
	default:
		q.given = append(q.given, policy.Entry{Name: p.name, Value: p.value})
	}
	return ""
}
