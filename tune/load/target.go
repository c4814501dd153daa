package load

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Request describes a request to send.
type Request struct {
	// URL begins with http:// or https://.
	URL string
	// Method is GET unless it is given.
	Method string
	// Header has the fields in addition to those that the protocol needs. It may contain Host.
	Header http.Header
	// Body is sent with each request.
	Body []byte
	// GRPC says that the URL's path is a method of gRPC, and Body its message. The request
	// is unary, and goes over HTTP/2.
	GRPC bool
	// Weight is how often the request is sent, in proportion to others. Zero means 1.
	Weight float64
}

// Target is a request that is ready to be sent many times.
type Target struct {
	// Name is the method and path, for people.
	Name string

	url     *url.URL
	request *http.Request // as a template
	body    []byte
	text    []byte // of HTTP/1.1
	weight  float64
	grpc    bool
}

// MaxBody is the maximum size of a request's body in bytes.
const MaxBody = 16 << 20

// ownFields belong to the connection, not to the request.
var ownFields = []string{"Connection", "Content-Length", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// NewTarget checks a request and writes it out.
func NewTarget(r Request) (*Target, error) {
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil, fmt.Errorf("headgate: the target is %q, which is no URL", r.URL)
	}
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	if r.GRPC {
		r.Method = http.MethodPost
	}
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("headgate: "+format, args...)) }
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		wrong("the target is %q, must be a URL such as http://127.0.0.1:8080/", u.Redacted())
	}
	if u.User != nil {
		wrong("the target has a user in its URL; send the header Authorization instead")
	}
	if len(r.Body) > MaxBody {
		wrong("the body has %d bytes, must have at most %d", len(r.Body), MaxBody)
	}
	if !(r.Weight >= 0 && r.Weight <= 1e15) {
		wrong("the weight is %g, must be 0 to 1e15", r.Weight)
	}
	for name, values := range r.Header {
		if slices.Contains(ownFields, http.CanonicalHeaderKey(name)) {
			wrong("the header %s belongs to the connection and cannot be set", name)
		}
		for _, value := range values {
			if strings.ContainsAny(value, "\r\n\x00") {
				wrong("the header %s has a line break in its value", name)
			}
		}
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	t := &Target{url: u, grpc: r.GRPC, weight: r.Weight, body: r.Body, Name: r.Method + " " + u.EscapedPath()}
	if t.weight == 0 {
		t.weight = 1
	}
	if r.GRPC {
		t.body = binary.BigEndian.AppendUint32([]byte{0}, uint32(len(r.Body)))
		t.body = append(t.body, r.Body...)
		t.Name = strings.TrimPrefix(u.EscapedPath(), "/")
	}
	return t, t.write(&r)
}

// write makes the request, and its text in HTTP/1.1.
func (t *Target) write(r *Request) error {
	var body io.Reader = http.NoBody
	if len(t.body) > 0 {
		body = bytes.NewReader(t.body)
	}
	request, err := http.NewRequestWithContext(context.Background(), r.Method, t.url.String(), body)
	if err != nil {
		return fmt.Errorf("headgate: the method is %q, which is none of HTTP's", r.Method)
	}
	request.Header.Set("User-Agent", "headgate-load")
	for name, values := range r.Header {
		request.Header[http.CanonicalHeaderKey(name)] = values
	}
	if host := request.Header.Get("Host"); host != "" {
		request.Host = host
		request.Header.Del("Host")
	}
	if t.grpc {
		request.Header.Set("Content-Type", "application/grpc")
		request.Header.Set("Te", "trailers")
	}
	t.request = request
	var text bytes.Buffer
	if err := request.Write(&text); err != nil {
		return fmt.Errorf("headgate: the request cannot be written: %w", err)
	}
	t.text = text.Bytes()
	return nil
}

// mix chooses targets by their weights.
type mix []float64 // the sums of the weights up to each

func newMix(targets []*Target) (m mix) {
	sum := 0.0
	for _, t := range targets {
		sum += t.weight
		m = append(m, sum)
	}
	return m
}

// at returns the target at a fraction, 0 to 1, of the sum of all weights.
func (m mix) at(part float64) int32 {
	i, _ := slices.BinarySearch(m, part*m[len(m)-1])
	return int32(min(i, len(m)-1))
}

// groups are the targets that are measured together because they have the same name. Only those
// with the most weight have a group.
type groups struct {
	names []string
	of    []int32 // for each target; -1 for none
}

func newGroups(targets []*Target) (g groups) {
	weights := make(map[string]float64)
	for _, t := range targets {
		if weights[t.Name] == 0 {
			g.names = append(g.names, t.Name)
		}
		weights[t.Name] += t.weight
	}
	slices.SortStableFunc(g.names, func(a, b string) int { return cmp.Compare(weights[b], weights[a]) })
	g.names = g.names[:min(len(g.names), maxTargets)]
	place := make(map[string]int32)
	for i, name := range g.names {
		place[name] = int32(i)
	}
	for _, t := range targets {
		n, ok := place[t.Name]
		if !ok {
			n = -1
		}
		g.of = append(g.of, n)
	}
	return g
}
