package dashboard

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/server/insightapi"
	"github.com/headgate/headgate/telemetry/insight"
)

const (
	// sampleEvery is how often viewers get a sample.
	sampleEvery = time.Second
	// maxViewers is the maximum number of streams, over all browsers.
	maxViewers = 32
	// maxEventBytes is about how much one viewer is sent for one sample at most, in bytes. Denials
	// that do not fit are only counted.
	maxEventBytes = 7 << 10
	// viewerTimeout is how long a viewer may take to read what it was sent. A slower one is
	// disconnected; a browser then reconnects by itself.
	viewerTimeout = 5 * time.Second
	// maxSampleDenials is the maximum number of denials in one sample.
	maxSampleDenials = 60
)

// stream makes samples for all viewers together, as long as there are any.
type stream struct {
	api    *insightapi.Handler
	ctx    context.Context //nolint:containedctx // It is the life of the stream, not of a call.
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu      sync.Mutex
	viewers int
	working bool
	latest  *sample
	seen    int64         // the number of denials in all samples so far
	next    chan struct{} // closed when a newer sample is there
}

// sample is what all viewers get at one time.
type sample struct {
	tick    []byte // JSON
	denials [][]byte
	lost    int64
	seen    int64 // the number of denials in all samples up to this one, including lost ones
}

func newStream(api *insightapi.Handler) *stream {
	s := &stream{api: api, next: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

func (s *stream) close() {
	s.cancel()
	s.all.Wait()
}

// join adds a viewer, and starts the work for the first one. It reports false if there are too
// many.
func (s *stream) join() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.viewers == maxViewers || s.ctx.Err() != nil {
		return false
	}
	if s.viewers++; !s.working {
		s.working = true
		ctx, cancel := context.WithCancel(s.ctx)
		s.all.Go(func() {
			defer cancel()
			s.work(ctx)
		})
	}
	return true
}

func (s *stream) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.viewers--
}

// work makes samples until there are no viewers.
func (s *stream) work(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	after := ""
	for {
		var made sample
		made, after = s.sample(ctx, after)
		s.mu.Lock()
		s.seen += int64(len(made.denials)) + made.lost
		made.seen = s.seen
		s.latest = &made
		close(s.next)
		s.next = make(chan struct{})
		s.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if s.stop() {
			return
		}
	}
}

// stop reports whether work must end because there are no viewers. It then drops the last sample,
// which would be old when the next viewer comes.
func (s *stream) stop() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.viewers > 0 {
		return false
	}
	s.latest, s.working = nil, false
	return true
}

// Tick is what every viewer gets once a second.
type Tick struct {
	// Now is the time of the tick, in milliseconds since 1970.
	Now int64 `json:"now"`
	// Minutes are the last complete minute and the current one.
	Minutes []insight.Minute `json:"minutes"`
	// Version is the version of the policy in force.
	Version   int64                 `json:"version"`
	Instances []insightapi.Instance `json:"instances"`
	// Slow is how long one call in a hundred to the store takes, if it is slow, or "". Reload is why the
	// last reload of the policy failed, or "".
	Slow   string `json:"slow,omitempty"`
	Reload string `json:"reload,omitempty"`
	// Left counts what the recorders have left out.
	Left insight.Left `json:"left_out"`
}

func (s *stream) sample(ctx context.Context, after string) (sample, string) {
	ctx, cancel := context.WithTimeout(ctx, viewerTimeout)
	defer cancel()
	var out sample
	now := s.api.Now(ctx, 2*time.Minute, 1)
	t := Tick{Now: now.Now, Instances: now.Instances, Left: now.Left, Slow: s.api.Slow(), Reload: s.api.ReloadFailed()}
	t.Minutes = now.Minutes[max(len(now.Minutes)-2, 0):]
	if len(now.Instances) > 0 {
		t.Version = now.Instances[0].Version
	}
	if text, err := json.Marshal(t); err == nil {
		out.tick = text
	}
	denials := s.api.Denials(ctx, after, maxSampleDenials)
	next := denials.Next
	if after == "" {
		return out, next // The page asks for earlier denials itself.
	}
	out.lost = denials.Lost
	for i := range denials.Denials {
		if text, err := json.Marshal(&denials.Denials[i]); err == nil {
			out.denials = append(out.denials, text)
		}
	}
	return out, next
}

// serveStream sends samples to one viewer, until the viewer disconnects, is too slow, or is signed
// out.
func (h *Handler) serveStream(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		refuse(w, http.StatusMethodNotAllowed, "this path takes GET")
		return
	}
	if !h.stream.join() {
		refuse(w, http.StatusServiceUnavailable, "too many pages are open")
		return
	}
	defer h.stream.leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	control := http.NewResponseController(w)
	denials := r.URL.Query().Get("denials") == "true"
	var sent *sample
	text := []byte("retry: 3000\n\n")
	for {
		h.stream.mu.Lock()
		latest, next := h.stream.latest, h.stream.next
		h.stream.mu.Unlock()
		if latest != nil && latest != sent {
			text = latest.append(text, denials, sent)
			sent = latest
		}
		// The stream lasts longer than the server's write timeout, so each write has a deadline of its
		// own.
		if control.SetWriteDeadline(time.Now().Add(viewerTimeout)) != nil {
			return
		}
		if _, err := w.Write(text); err != nil || control.Flush() != nil {
			return
		}
		text = text[:0]
		select {
		case <-next:
		case <-time.After(2 * viewerTimeout):
			text = append(text, ": still here\n\n"...)
		case <-r.Context().Done():
			return
		case <-h.stream.ctx.Done():
			return
		}
		if !h.signedIn(r) {
			return
		}
	}
}

// append appends the events of the sample for one viewer, as many as fit. The event "lost" counts
// the denials that do not fit, and those of samples that the viewer missed since sent, because it
// was slow.
func (s *sample) append(to []byte, denials bool, sent *sample) []byte {
	to = append(append(append(to, "event: tick\ndata: "...), s.tick...), "\n\n"...)
	if !denials {
		return to
	}
	lost := s.lost
	if sent != nil {
		lost = s.seen - sent.seen - int64(len(s.denials))
	}
	for _, d := range s.denials {
		if len(to)+len(d) > maxEventBytes {
			lost++
			continue
		}
		to = append(append(append(to, "event: denial\ndata: "...), d...), "\n\n"...)
	}
	if lost > 0 {
		n, _ := json.Marshal(lost)
		to = append(append(append(to, "event: lost\ndata: "...), n...), "\n\n"...)
	}
	return to
}
