package load

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/httplimit/outbound"
	"github.com/headgate/headgate/tune/accesslog"
)

// Request describes a request to send.
type Request struct {
	// URL begins with http:// or https://, or with redis:// or rediss:// for a server that speaks
	// Redis's protocol.
	URL string
	// Method is GET unless it is given.
	Method string
	// Header has the fields in addition to those that the protocol needs. It may contain Host.
	Header http.Header
	// Body is sent with each request. For a server of Redis's protocol it is the words of the
	// command. Of the answers to CL.THROTTLE, THROTTLE as throttlecrab has it, and Headgate's own
	// commands, it is known what they say of the limit.
	Body []byte
	// GRPC says that the URL's path is a method of gRPC, and Body its message. The request
	// is unary, and goes over HTTP/2.
	GRPC bool
	// Read returns what the message of an answer of gRPC says of the limit; nil if messages say
	// nothing of it. It may be called by several goroutines at once.
	Read func(message []byte) (Hint, error)
	// Weight is how often the request is sent, in proportion to others. Zero means 1.
	Weight float64
}

// Hint is what an answer says of the limits.
type Hint = outbound.Hint

// Window is one limit of a [Hint].
type Window = outbound.Window

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
	read    func(message []byte) (Hint, error)
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
	r.Method = cmp.Or(r.Method, http.MethodGet)
	if r.GRPC {
		r.Method = http.MethodPost
	}
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("headgate: "+format, args...)) }
	if u.Scheme != "http" && u.Scheme != "https" && !redis(u.Scheme) || u.Hostname() == "" {
		wrong("the target is %q, must be a URL such as http://127.0.0.1:8080/", u.Redacted())
	}
	if port, err := strconv.ParseUint(cmp.Or(u.Port(), "1"), 10, 16); err != nil || port == 0 {
		wrong("the target has the port %s, must be 1 to 65535", u.Port())
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
	t := &Target{url: u, grpc: r.GRPC, read: r.Read, weight: cmp.Or(r.Weight, 1), body: r.Body, Name: r.Method + " " + u.EscapedPath()}
	if redis(u.Scheme) {
		return newCommand(t, &r)
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

// Shape says when the requests of one measurement are due.
type Shape struct {
	// Rate is how many requests are sent per second. If the rate changes evenly, To is the rate at
	// the end; zero means Rate.
	Rate, To float64
	// For is how long requests are sent.
	For time.Duration
	// Recorded are the requests of a log, in order of time. They replace a rate.
	Recorded []Arrival
}

// Arrival is one request of a log.
type Arrival struct {
	// At is when the request is due, counted from the beginning.
	At time.Duration
	// Target is the index of its target in [Options.Targets].
	Target int32
}

// The bounds of a [Shape].
const (
	MinRate = 0.01
	MaxRate = 1_000_000
	MaxFor  = 24 * time.Hour
)

// Check returns an error that says what is wrong with the shape.
func (s *Shape) Check() error {
	to := s.to()
	switch {
	case len(s.Recorded) > 0:
		return nil
	case !(s.Rate >= MinRate && s.Rate <= MaxRate):
		return fmt.Errorf("headgate: the rate is %g requests a second, must be %g to %d", s.Rate, MinRate, MaxRate)
	case !(to >= MinRate && to <= MaxRate):
		return fmt.Errorf("headgate: the rate at the end is %g requests a second, must be %g to %d", to, MinRate, MaxRate)
	case s.For <= 0 || s.For > MaxFor:
		return fmt.Errorf("headgate: requests are sent for %v, must be more than 0s and at most %v", s.For, MaxFor)
	case s.count() == 0:
		return fmt.Errorf("headgate: %g requests a second for %v are none", s.Rate, s.For)
	}
	return nil
}

func (s *Shape) to() float64 { return cmp.Or(s.To, s.Rate) }

// count is how many requests there are.
func (s *Shape) count() int64 {
	if len(s.Recorded) > 0 {
		return int64(len(s.Recorded))
	}
	// A product such as 0.1 × 30 may be slightly below its true value.
	return int64((s.Rate+s.to())/2*s.For.Seconds() + 1e-6)
}

// due returns when request i is due, counted from the beginning. After the time t, a t + k t²/2
// requests are due, where a is the rate at the beginning, and k its growth per second.
func (s *Shape) due(i int64) time.Duration {
	if len(s.Recorded) > 0 {
		return s.Recorded[i].At
	}
	a, n := s.Rate, float64(i)
	k := (s.to() - a) / s.For.Seconds()
	// Where the rate falls, rounding must not put the last one below zero.
	root := math.Sqrt(max(a*a+2*k*n, 0))
	return time.Duration(2 * n / (a + root) * float64(time.Second))
}

// length is how long requests are due.
func (s *Shape) length() time.Duration {
	if n := len(s.Recorded); n > 0 {
		return max(s.Recorded[n-1].At, time.Millisecond)
	}
	return s.For
}

// The bounds of a [Recording].
const (
	// MaxTargets is how many different requests are taken from a log, and MaxArrivals how
	// many requests in all.
	MaxTargets  = 10_000
	MaxArrivals = 2_000_000
)

// Recording holds the requests of access logs. Only GET and HEAD are taken: the log does not have
// the body of other requests, and they would change the data of the service.
type Recording struct {
	// Arrivals are the requests by the times at which they came. If the log has only whole seconds,
	// the requests of a second are spread evenly.
	Arrivals []Arrival
	// Taken is how many requests of the log are sent. Left is how many are not, because of their
	// method, because their target is no path, or because they are beyond the bounds.
	Taken, Left int64

	base    Request
	host    string
	forward string
	speed   float64
	most    time.Duration // 0: no arrivals are kept
	began   int64
	index   map[string]int32
	names   []string
	count   []int64
}

// NewRecording returns a recording of requests like base, to its host. If most is positive, it
// keeps the arrivals within that time, sped up by the factor speed. If forward is the name of a
// header, such as X-Forwarded-For, requests carry the client's address in it.
func NewRecording(base Request, most time.Duration, speed float64, forward string) (*Recording, error) {
	u, err := url.Parse(base.URL)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("headgate: the target is %q, must be a URL such as http://127.0.0.1:8080", base.URL)
	}
	return &Recording{base: base, host: u.Scheme + "://" + u.Host, most: most, speed: speed, forward: forward, index: make(map[string]int32)}, nil
}

// Add takes the requests of a stretch of a log.
func (r *Recording) Add(s *accesslog.Stretch) {
	for i := range s.Requests {
		one := &s.Requests[i]
		method, target := one.Text(one.Method), one.Text(one.Target)
		if method != http.MethodGet && method != http.MethodHead || !strings.HasPrefix(target, "/") {
			r.Left++
			continue
		}
		if r.Taken == 0 {
			r.began = one.Spread
		}
		at := time.Duration(float64(one.Spread-r.began) / r.speed * float64(time.Microsecond))
		if r.most > 0 && (at >= r.most || len(r.Arrivals) == MaxArrivals) {
			r.Left++
			continue
		}
		client := ""
		if r.forward != "" {
			client = one.Text(one.IP)
		}
		n, ok := r.target(client + " " + method + " " + target)
		if !ok {
			r.Left++
			continue
		}
		r.Taken++
		r.count[n]++
		if r.most > 0 {
			r.Arrivals = append(r.Arrivals, Arrival{At: at, Target: n})
		}
	}
}

// target is the index of a request. The text is the log's, and kept only as a copy.
func (r *Recording) target(text string) (int32, bool) {
	if n, ok := r.index[text]; ok {
		return n, true
	}
	if len(r.names) == MaxTargets {
		return 0, false
	}
	_, _, target := parts(text)
	if _, err := url.Parse(r.host + target); err != nil {
		return 0, false
	}
	n := int32(len(r.names))
	name := strings.Clone(text)
	r.index[name] = n
	r.names, r.count = append(r.names, name), append(r.count, 0)
	return n, true
}

// parts are the client, the method and the target of a request.
func parts(text string) (client, method, target string) {
	client, rest, _ := strings.Cut(text, " ")
	method, target, _ = strings.Cut(rest, " ")
	return client, method, target
}

// Targets returns the requests with their weights, the most frequent first. It must be called once,
// after the log was read.
func (r *Recording) Targets() ([]*Target, error) {
	order := make([]int32, len(r.names))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return int(r.count[b] - r.count[a]) })
	place := make([]int32, len(order))
	var all []*Target
	for at, n := range order {
		place[n] = int32(at)
		one := r.base
		client, method, target := parts(r.names[n])
		one.Method, one.URL, one.Weight = method, r.host+target, float64(r.count[n])
		if client != "" {
			one.Header = one.Header.Clone()
			if one.Header == nil {
				one.Header = make(http.Header)
			}
			one.Header.Set(r.forward, client)
		}
		t, err := NewTarget(one)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	for i := range r.Arrivals {
		r.Arrivals[i].Target = place[r.Arrivals[i].Target]
	}
	return all, nil
}
