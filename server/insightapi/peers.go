package insightapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Peers are the other instances of the service.
type Peers struct {
	// URLs are the URLs of their HTTP APIs. A host name with several addresses stands for one instance
	// at each of them. This instance may be among them.
	URLs []string
	// Token is the admin token of the instances.
	Token string
	// Client sends the requests. Nil means a default client.
	Client *http.Client
	// Resolve returns the addresses of a host name. Nil means the system's resolver.
	Resolve func(ctx context.Context, host string) ([]string, error)
}

// Instance is one instance that was asked.
type Instance struct {
	Name string `json:"name"`
	// Node is the instance's [insight.Recorder.Node], which is new after each start.
	Node    string `json:"node,omitempty"`
	Version int64  `json:"version,omitempty"`
	Hash    string `json:"hash,omitempty"`
	// Store is the state of the store as the instance sees it; see [Store].
	Store string `json:"store,omitempty"`
	// OK says that the instance has answered. Otherwise Error says why it has not.
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

// part is the answer of an instance to another one.
type part[T any] struct {
	Instance Instance `json:"instance"`
	Part     T        `json:"part"`
}

const (
	// peerTimeout is how long another instance may take to answer.
	peerTimeout = 2 * time.Second
	maxPeers    = 64
	maxAnswer   = 16 << 20
)

func (h *Handler) self() Instance {
	p := h.o.Policy()
	return Instance{Name: h.o.Name, Node: h.o.Recorder.Node(), Version: p.Version, Hash: p.Hash, Store: h.storeState(), OK: true}
}

// whole returns the answer: only the part of this instance if another one asks, and otherwise the
// answer for all.
func (h *Handler) whole(q *query, own any, all func() any) (any, *failure) {
	if q.local {
		return part[any]{h.self(), own}, nil
	}
	return all(), nil
}

// ask sends the query to the other instances, and returns the parts of those that answered, and all
// instances. The first instance is this one.
func ask[T any](h *Handler, q *query) ([]T, []Instance) {
	instances := []Instance{h.self()}
	if q.local || h.o.Peers == nil {
		return nil, instances
	}
	ctx, cancel := context.WithTimeout(q.ctx, peerTimeout)
	defer cancel()
	values := maps.Clone(q.values)
	values.Set("instances", "this")
	targets, failed := h.o.Peers.targets(ctx)
	answers := make([]part[T], len(targets))
	var all sync.WaitGroup
	for i, target := range targets {
		all.Go(func() {
			u := *target.JoinPath(Prefix, q.path)
			u.RawQuery = values.Encode()
			if err := h.o.Peers.get(ctx, u.String(), q.body, &answers[i]); err != nil {
				answers[i].Instance = Instance{Name: target.Host, Error: err.Error()}
				return
			}
			answers[i].Instance.OK = true
			if answers[i].Instance.Name == "" {
				answers[i].Instance.Name = target.Host
			}
		})
	}
	all.Wait()
	var parts []T
	for i := range answers {
		one := &answers[i]
		if one.Instance.OK {
			known := func(of Instance) bool { return of.Node == one.Instance.Node }
			if slices.ContainsFunc(instances, known) {
				continue // this instance, or one with two addresses
			}
			parts = append(parts, one.Part)
		}
		instances = append(instances, one.Instance)
	}
	return parts, append(instances, failed...)
}

// targets returns the URLs of the instances to ask, and the instances whose names could not be
// resolved.
func (p *Peers) targets(ctx context.Context) (list []*url.URL, failed []Instance) {
	return targets(ctx, p.URLs, p.Resolve)
}

// targets returns the URLs to ask, and those whose names could not be resolved. A name with several
// addresses becomes one URL for each of them.
func targets(ctx context.Context, urls []string, resolve func(ctx context.Context, host string) ([]string, error)) (list []*url.URL, failed []Instance) {
	if resolve == nil {
		resolve = net.DefaultResolver.LookupHost
	}
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			continue // CheckPeer and CheckConsumer have refused such URLs.
		}
		if u.Scheme == "https" || net.ParseIP(u.Hostname()) != nil {
			// The certificate is for the host name, so the name must stay.
			list = append(list, u)
			continue
		}
		addresses, err := resolve(ctx, u.Hostname())
		if err != nil {
			failed = append(failed, Instance{Name: u.Host, Error: "its name has no address"})
			continue
		}
		slices.Sort(addresses)
		for _, address := range addresses {
			at := *u
			at.Host = net.JoinHostPort(address, portOf(u))
			list = append(list, &at)
		}
	}
	return list[:min(len(list), maxPeers)], failed
}

func portOf(u *url.URL) string {
	if port := u.Port(); port != "" {
		return port
	}
	return "80"
}

var (
	errAnswer = errors.New("its answer is not understood")
	errLate   = fmt.Errorf("it did not answer within %v", peerTimeout)
)

// get sends a GET request to a peer, or a POST if there is a body, and decodes its answer into to.
func (p *Peers) get(ctx context.Context, from string, body []byte, to any) error {
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(ctx, method, from, bytes.NewReader(body))
	if err != nil {
		return errAnswer
	}
	request.Header.Set("Content-Type", "application/json")
	if p.Token != "" {
		request.Header.Set("Authorization", "Bearer "+p.Token)
	}
	response, err := send(ctx, p.Client, request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(to); err != nil {
		return errAnswer
	}
	return nil
}

// send sends a request to another program. It returns the response if its status is 200, and
// otherwise an error. It does not follow redirects.
func send(ctx context.Context, with *http.Client, request *http.Request) (*http.Response, error) {
	client := http.Client{}
	if with != nil {
		client = *with
	}
	// A redirect could send the token to a place that whoever answers there chooses: Go's client would
	// keep the header for another port of the same host.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := client.Do(request)
	switch {
	case ctx.Err() != nil:
		if err == nil {
			_ = response.Body.Close()
		}
		return nil, errLate
	case err != nil:
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return nil, fmt.Errorf("it does not answer: %w", err)
	case response.StatusCode != http.StatusOK:
		_ = response.Body.Close()
		return nil, fmt.Errorf("it answers with status %d", response.StatusCode)
	}
	return response, nil
}

// CheckPeer returns what is wrong with the URL of an instance, or "".
func CheckPeer(text string) string {
	if checkURL(text) {
		return ""
	}
	return "it is not the URL of an instance, such as http://headgate.internal:8080"
}

// CheckConsumer returns what is wrong with the URL of a program's metrics, or "".
func CheckConsumer(text string) string {
	if checkURL(text) {
		return ""
	}
	return "it is not the URL of a program's metrics, such as http://billing.internal:9090/metrics"
}

func checkURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.RawQuery == "" && u.User == nil
}

// readCursor parses a cursor: NODE.SEQ pairs, separated by commas, with the last event that was
// seen of each node.
func readCursor(text string) (map[string]int64, bool) {
	cursor := make(map[string]int64)
	if text == "" {
		return cursor, true
	}
	for pair := range strings.SplitSeq(text, ",") {
		node, number, ok := strings.Cut(pair, ".")
		seq, err := strconv.ParseInt(number, 10, 64)
		if !ok || err != nil || seq < 0 || node == "" || len(cursor) > maxPeers {
			return nil, false
		}
		cursor[node] = seq
	}
	return cursor, true
}

func writeCursor(cursor map[string]int64) string {
	pairs := make([]string, 0, len(cursor))
	for node, seq := range cursor {
		pairs = append(pairs, node+"."+strconv.FormatInt(seq, 10))
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}
