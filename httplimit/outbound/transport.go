package outbound

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/retry"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/notice"
	"github.com/headgate/headgate/store"
)

// Transport is an [http.RoundTripper] that keeps within limits. It is safe for concurrent
// use; make one with [New]. There is nothing to close: what it does beside its calls, such as telling
// other processes by the store, ends by itself within two seconds of the last one.
type Transport struct {
	config    Config
	store     headgate.Store  // nil if nothing is shared
	documents store.Documents // nil if each process has a pace of its own
	base      http.RoundTripper
	partners  partners
}

// New returns a transport around base, which sends the requests; nil means
// http.DefaultTransport. What bounds authentication or tracing may stand around it or be
// its base. The store may be nil if there are no Limits: then what a partner asks for is
// known to this process only. The error is a [*headgate.InvalidError] with every mistake.
func New(shared headgate.Store, base http.RoundTripper, config Config) (*Transport, error) {
	if len(config.Limits) > 0 && shared == nil {
		var problems headgate.Problems
		problems.Add("store", "the store is nil, which Limits need")
		return nil, problems.Err("outbound")
	}
	if err := config.fill(); err != nil {
		return nil, err
	}
	if base == nil {
		base = http.DefaultTransport
	}
	t := &Transport{config: config, store: shared, base: base}
	t.documents, _ = shared.(store.Documents)
	if shared != nil && !config.FailClosed {
		within := &reach{store: shared, documents: t.documents}
		if t.store = within; t.documents != nil {
			t.documents = within
		}
	}
	t.partners.all = make(map[string]*list.Element)
	t.partners.make = func(name string) *partner {
		var gate flow.Gate
		if config.Gate != nil {
			gate = config.Gate(name)
		}
		return newPartner(retry.NewBudget(config.Budget, config.Floor), gate, t.documents != nil)
	}
	return t, nil
}

// call is one request with all its attempts.
type call struct {
	t        *Transport
	r        *http.Request
	ctx      context.Context
	name     string // of the partner
	endpoint string
	*partner
	left  time.Duration // that it may wait yet
	again bool          // it may be sent again

	own     []headgate.Check // the limits of our own that bind it
	key     string           // of its line in bounds
	charged []headgate.Check // what the next attempt was charged

	undecided bool // the store could not answer it last

	// What follows is guarded by the partner's mutex.
	number uint64        // calls of a partner go in the order of their numbers; 0 before it has one
	at     *list.Element // its place in a line; nil while it is in none
	turn   chan struct{} // told when it goes; has room for one value
	came   time.Time     // when its next attempt began to wait; zero before it did
	took   time.Duration // how much of the time in which calls are spread its last place has taken
	asks   *bound        // the line that counts it among those that ask the store; nil for none
}

// RoundTrip implements [http.RoundTripper]. Its errors are a [*headgate.DeniedError] if the
// request was not sent since it would have had to wait for too long, or since the partner
// has rejected all such requests of late; a [*flow.Rejection] of the gate; or that of the
// transport that sends. An answer that is not to be retried by anybody above has Headgate-Retry: no, be it
// that it came with that, or that this transport has given up.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	name := t.config.Partner(r)
	c := &call{t: t, r: r, ctx: r.Context(), name: name, endpoint: r.Method + " " + r.URL.Path, partner: t.partners.of(name), left: t.config.MaxWait, again: repeatable(r)}
	cancel := context.CancelFunc(func() {})
	if t.config.Timeout > 0 {
		c.ctx, cancel = context.WithTimeout(c.ctx, t.config.Timeout)
	}
	c.bind()
	res, err := c.do()
	if err != nil {
		cancel()
		return nil, err
	}
	res.Body = closing(res.Body, cancel)
	return res, nil
}

// repeatable reports whether a request may be sent more than once.
func repeatable(r *http.Request) bool {
	if r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		return false
	}
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return r.Header.Get("Idempotency-Key") != "" || r.Header.Get("X-Idempotency-Key") != ""
}

func (c *call) do() (*http.Response, error) {
	if err := c.throttled(); err != nil {
		return nil, err
	}
	c.Call()
	probes := c.Closed(c.endpoint)
	for try := 1; ; try++ {
		if err := c.admit(); err != nil {
			c.unsent()
			return nil, err
		}
		if !probes && c.Closed(c.endpoint) { // since it has waited
			if err := c.throttled(); err != nil {
				c.refund(c.charged)
				return nil, err
			}
		}
		res, hint, err := c.attempt(try)
		if err != nil && (c.ctx.Err() != nil || errors.Is(err, flow.ErrShed)) {
			return nil, err
		}
		if !failed(res, &hint, err) {
			return res, err
		}
		wait, ok := c.retry(try, &hint)
		if !ok {
			return c.giveUp(res, err)
		}
		discard(res)
		if err := c.sleep(wait); err != nil {
			return nil, err
		}
		if c.t.config.Hooks.Retried != nil {
			c.t.config.Hooks.Retried(c.r, try+1)
		}
	}
}

// throttled returns an error if the partner rejects all such calls, and this one is not to find out
// whether it still does.
func (c *call) throttled() error {
	wait := c.Wait(c.endpoint, time.Now())
	if wait <= 0 {
		wait = c.claim()
	}
	if wait <= 0 {
		if c.Closed(c.endpoint) {
			// Another process may have been refused last.
			c.readPace(c.ctx, time.Now(), 0)
			c.outlast(time.Now())
		}
		return nil
	}
	c.unsent()
	return &headgate.DeniedError{
		Decision: headgate.Decision{RetryAfter: wait},
		Reason:   fmt.Sprintf("%s has rejected all such calls of late; one is sent now and then, to find out when it accepts them again", c.name),
	}
}

// failed reports whether an attempt has failed so that another one might not.
func failed(res *http.Response, hint *Hint, err error) bool {
	if err != nil || hint.Limited {
		return true
	}
	switch res.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// retry decides whether to try again, and when. The budget is charged here: what waits to be
// sent again counts already.
func (c *call) retry(try int, hint *Hint) (wait time.Duration, ok bool) {
	if !c.again || hint.NoRetry || try >= c.t.config.Tries {
		return 0, false
	}
	wait = retry.Backoff{Base: c.t.config.Backoff, Max: c.t.config.MaxBackoff}.Wait(try, hint.Wait)
	if wait > c.left || hint.Wait > c.t.config.MaxPause || admission.EndsWithin(c.ctx, wait) {
		return 0, false
	}
	if pause := c.Pause(c.endpoint, time.Now()); wait < pause && pause <= c.left && !admission.EndsWithin(c.ctx, pause) {
		wait = pause
	}
	return wait, !c.Closed(c.endpoint) && c.Take()
}

// giveUp returns the last attempt's answer or error, marked so that nobody above tries again:
// what could be done here was done.
func (c *call) giveUp(res *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return nil, err
	}
	if c.again {
		res.Header.Set(notice.RetryHeader, notice.NoRetry)
	}
	return res, nil
}

// unsent closes the body of a request that is not sent, as a RoundTripper must.
func (c *call) unsent() {
	if c.r.Body != nil {
		_ = c.r.Body.Close() // Nobody reads it.
	}
}

// sleep waits, and counts it.
func (c *call) sleep(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	if err := admission.Sleep(c.ctx, d); err != nil {
		return err
	}
	c.left -= d
	if c.t.config.Hooks.Waited != nil {
		c.t.config.Hooks.Waited(c.r, d)
	}
	return nil
}

// denied is the error of a call that would have to wait for too long.
func (c *call) denied(d headgate.Decision) error {
	reason := fmt.Sprintf("the call may wait for %v", c.left.Round(time.Millisecond))
	if deadline, ok := c.ctx.Deadline(); ok && time.Until(deadline) < c.left {
		reason = "the context's deadline comes first"
	}
	return &headgate.DeniedError{Decision: d, Reason: reason}
}

// patience is for how long the call may wait from now on.
func (c *call) patience(now time.Time) time.Duration {
	if deadline, ok := c.ctx.Deadline(); ok {
		return min(c.left, deadline.Sub(now))
	}
	return c.left
}

// admit waits until the request may be sent, or returns why it may not.
func (c *call) admit() error {
	c.readPace(c.ctx, time.Now(), paceEvery)
	for {
		ok, err := false, c.await()
		if err == nil {
			ok, err = c.ask()
		}
		if ok || err != nil {
			c.leave(ok)
			return err
		}
	}
}

// attempt sends the request once, or twice if it is hedged.
func (c *call) attempt(try int) (*http.Response, Hint, error) {
	if c.t.config.Hedge > 0 && c.again && (c.r.Body == nil || c.r.Body == http.NoBody) {
		return c.hedged(try)
	}
	return c.send(try)
}

// send sends the request, and learns from the answer.
func (c *call) send(try int) (*http.Response, Hint, error) {
	if c.t.config.TryTimeout > 0 {
		ctx, cancel := context.WithTimeout(c.ctx, c.t.config.TryTimeout)
		return c.sendIn(ctx, cancel, try, c.charged)
	}
	ctx, cancel := context.WithCancel(c.ctx)
	return c.sendIn(ctx, cancel, try, c.charged)
}

// sendIn is send in a context that cancel ends. charged is given back if nothing is sent.
func (c *call) sendIn(ctx context.Context, cancel context.CancelFunc, try int, charged []headgate.Check) (*http.Response, Hint, error) {
	var permit flow.Permit
	if c.gate != nil {
		var err error
		if permit, err = c.gate.Acquire(ctx, flow.Request{Key: c.name}); err != nil {
			cancel()
			c.unsent()
			c.refund(charged)
			return nil, Hint{}, err
		}
	}
	r := c.r.Clone(ctx)
	if try > 1 && c.r.GetBody != nil {
		body, err := c.r.GetBody()
		if err != nil {
			cancel()
			permit.Done(flow.Unused)
			c.refund(charged)
			return nil, Hint{NoRetry: true}, fmt.Errorf("outbound: getting the body again: %w", err)
		}
		r.Body = body
	}
	permit.Begin()
	sent := c.begin(time.Now())
	res, err := c.t.base.RoundTrip(r)
	now := time.Now()
	if err != nil {
		late, ended := flow.OutcomeOf(err) == flow.Overload, errors.Is(ctx.Err(), context.Canceled)
		lost := errors.Is(context.Cause(ctx), errLost)
		cancel()
		outcome := flow.Ignore
		switch {
		case lost: // Its caller has an answer, and did not wait for too long.
		case late:
			outcome = flow.Overload
		case ended:
			outcome = flow.Canceled
		}
		permit.Done(outcome)
		if !ended {
			c.rejected(now)
		}
		return nil, Hint{}, err
	}
	hint := ReadHint(res.StatusCode, res.Header, now)
	if failed(res, &hint, nil) {
		c.rejected(now)
	} else {
		if c.Accepted(c.endpoint) && c.t.documents != nil {
			go c.telling(c.tellAccepted)
		}
		if c.accept(sent, now) {
			if c.t.documents == nil {
				c.up(now)
			} else {
				go c.telling(c.tellUp) // The answer does not wait for it.
			}
		}
	}
	c.learn(&hint, sent, now)
	res.Body = ending(res, permit, cancel)
	return res, hint, nil
}

// outcomeOf is what an answer says about load.
func outcomeOf(res *http.Response) flow.Outcome {
	switch {
	case res.StatusCode == http.StatusServiceUnavailable, res.StatusCode == http.StatusGatewayTimeout:
		return flow.Overload
	case res.StatusCode >= http.StatusBadRequest, admission.IsEvents(res.Header["Content-Type"]):
		return flow.Ignore
	}
	return flow.Success
}

// ending is the body of an answer that gives the permit back when it was read or closed, and
// ends the attempt's context then, not before. What has no permit any more is given back when
// the answer begins: a stream, and the connection of an upgrade, which stays writable.
func ending(res *http.Response, permit flow.Permit, cancel context.CancelFunc) io.ReadCloser {
	outcome := outcomeOf(res)
	if res.StatusCode == http.StatusSwitchingProtocols {
		permit.Done(flow.Ignore)
		return closing(res.Body, cancel)
	}
	if outcome == flow.Ignore || res.ContentLength >= 0 {
		permit.Done(outcome)
	}
	return closing(res.Body, func() {
		permit.Done(flow.Ignore)
		cancel()
	}, func() { permit.Done(outcome) })
}

// closing is a body that calls done once it is closed, and ended when it was read to its end.
func closing(body io.ReadCloser, done func(), ended ...func()) io.ReadCloser {
	b := &endedBody{ReadCloser: body, done: done, ended: ended}
	if w, ok := body.(io.Writer); ok {
		return struct {
			*endedBody
			io.Writer
		}{b, w}
	}
	return b
}

type endedBody struct {
	io.ReadCloser
	done  func()
	ended []func()
}

// Read implements [io.Reader].
func (b *endedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		for _, f := range b.ended {
			f()
		}
	}
	return n, err
}

// Close implements [io.Closer].
func (b *endedBody) Close() error {
	err := b.ReadCloser.Close()
	b.done()
	return err
}

// abandon ends the attempt while its answer may still be read.
func (b *endedBody) abandon() { b.done() }

const (
	// discarded is how much of an answer is read that nobody sees, so that its connection can
	// be used again.
	discarded = 64 << 10
	// discardWithin is how long that may take. A partner may never end its answer.
	discardWithin = 100 * time.Millisecond
)

func discard(res *http.Response) {
	if res == nil {
		return
	}
	if b, ok := res.Body.(interface{ abandon() }); ok {
		defer time.AfterFunc(discardWithin, b.abandon).Stop()
	}
	_, _ = io.CopyN(io.Discard, res.Body, discarded)
	_ = res.Body.Close()
}
