package load

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/tune/accesslog"
)

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
