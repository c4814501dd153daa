package resp

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

func postCommands() []*command {
	return []*command{{
		name: "HG.POST", least: 3, most: 3, decides: true, path: 1, run: (*call).post, params: []param{{name: "path"}, {name: "body"}},
		summary: "Makes a call of the HTTP API, such as /v1/check, and answers with its status, headers and body.",
	}}
}

// posting is the memory for calls of the HTTP API, which later calls reuse. It is their
// [http.ResponseWriter] and the body of their request.
type posting struct {
	request *http.Request
	url     url.URL
	rest    string // of the request's body
	header  http.Header
	names   []string // of the header
	status  int
	body    []byte // of the answer
}

var (
	jsonType = []string{"application/json"} // Nobody changes it.
	_        = io.ReadCloser((*posting)(nil))
	_        = http.ResponseWriter((*posting)(nil))
)

// begin makes the posting the request for a path, which may have a query, with a body of JSON.
func (p *posting) begin(ctx context.Context, path, body string) {
	if p.request == nil || p.request.Context() != ctx {
		p.request = (&http.Request{Method: http.MethodPost, URL: &p.url, Header: make(http.Header), Body: p, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
	}
	// The API may have added headers for the call before, such as its trace.
	clear(p.request.Header)
	p.request.Header["Content-Type"] = jsonType
	p.url.Path, p.url.RawQuery, _ = strings.Cut(path, "?")
	p.request.ContentLength, p.rest = int64(len(body)), body
}

// end drops references to the call's data, and keeps buffers of the usual size.
func (p *posting) end() {
	const usual = 4 << 10
	clear(p.header)
	p.url, p.rest, p.status, p.body = url.URL{}, "", 0, p.body[:0]
	if cap(p.body) > usual {
		p.body = nil
	}
}

// Read reads the request's body.
func (p *posting) Read(b []byte) (n int, err error) {
	if p.rest == "" {
		return 0, io.EOF
	}
	n = copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// Close does nothing.
func (p *posting) Close() error { return nil }

// Header returns the headers of the answer.
func (p *posting) Header() http.Header { return p.header }

// WriteHeader sets the status of the answer, once.
func (p *posting) WriteHeader(status int) {
	if p.status == 0 {
		p.status = status
	}
}

// Write adds to the body of the answer.
func (p *posting) Write(b []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	p.body = append(p.body, b...)
	return len(b), nil
}

// post makes a call of the HTTP API. The answer leaves out the headers that describe its body.
func (k *call) post() {
	s := k.conn.server
	if s.options.API == nil {
		k.fail("ERR", k.command.name+": the HTTP API is not served here")
		return
	}
	p := s.postings.Get().(*posting)
	p.begin(k.ctx, k.args[k.command.path], k.args[2])
	k.logged = true
	if s.options.AccessLog {
		p.request.RemoteAddr = k.conn.nc.RemoteAddr().String()
	}
	s.options.API.ServeHTTP(p, p.request)
	if p.status == 0 {
		k.fail("UNAVAILABLE", "the server is ending; whether the request was charged is not known")
	} else {
		k.appendPosted(p)
	}
	// Not deferred: after a panic it is in an unknown state, and must not be used again.
	p.end()
	s.postings.Put(p)
}

func (k *call) appendPosted(p *posting) {
	delete(p.header, "Content-Type")
	delete(p.header, "Content-Length")
	b := appendInt(appendArray(k.out, 3), int64(p.status))
	b = k.proto.appendMap(b, len(p.header))
	// In one order, because clients in JavaScript read objects that were made in the same order faster.
	p.names = slices.AppendSeq(p.names[:0], maps.Keys(p.header))
	slices.Sort(p.names)
	for _, name := range p.names {
		b = appendBulk(appendBulk(b, name), strings.Join(p.header[name], ", "))
	}
	b = appendHead(b, '$', int64(len(p.body)))
	k.out = append(append(b, p.body...), '\r', '\n')
}
