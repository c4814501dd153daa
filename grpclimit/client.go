package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow/retry"
	"github.com/headgate/headgate/internal/admission"
)

// Client limits the calls that a gRPC client makes. It is safe for concurrent use;
// make one with [NewClient].
type Client struct {
	clientSettings
	calls    *admission.Gate[*Call]
	messages *admission.Gate[*Call] // of streams
	pauses   pauses
	budget   *retry.Budget
}

// NewClient returns interceptors that hold calls back until the store admits them and the server is
// ready for them. The store may be nil if there are no limits but those that servers report. The
// error is a [*headgate.InvalidError] with every mistake in the options.
func NewClient(store headgate.Store, options ...ClientOption) (*Client, error) {
	c := &Client{clientSettings: clientSettings{
		settings: newSettings(store),
		maxWait:  DefaultMaxWait,
		maxPause: DefaultMaxPause,
		pauseBy:  Combine(ByTarget(), ByMethod()),
		share:    retry.DefaultShare,
		floor:    retry.DefaultFloor,
	}}
	s := &c.settings
	for _, o := range options {
		o(&c.clientSettings)
	}
	if store == nil && len(s.limits)+len(s.messageLimits) > 0 {
		s.Bad("store", "the store is nil, which limits need")
	}
	// A call that lacks the entry by which a limit counts is not bound by it.
	s.Missing, s.OneWait = PassMissing, true
	s.Hooks = admission.Hooks[*Call]{Failed: c.hooks.Failed, Waited: c.hooks.Waited}
	s.Known, s.Finders = []*fact{factAPIKey, factRoute, factMethod, factService, factTarget}, s.reader.finders()
	gates := admission.New(&s.Options,
		admission.Group[*Call]{Option: "ClientLimit", Bindings: s.limits, Cost: s.cost, CostOption: "ClientCost"},
		admission.Group[*Call]{Option: "ClientMessageLimit", Bindings: s.messageLimits, Cost: s.cost, CostOption: "ClientCost"})
	for _, f := range c.pauseBy.of.Facts {
		if s.Found(f).Find == nil {
			s.Bad("PauseBy", "PauseBy: the entry %q needs a function that finds it", f.Name)
		}
	}
	for _, l := range append(append([]admission.Binding[*Call]{{Key: c.pauseBy.of}}, s.limits...), s.messageLimits...) {
		for _, f := range l.Key.Facts {
			if f == factIP || f == factCertificate || f == factHost {
				s.Bad("", "a client's own calls have no %s to count by", f.Name)
			}
		}
	}
	if err := s.Problems.Err("interceptor"); err != nil {
		return nil, err
	}
	c.calls, c.messages = gates[0], gates[1]
	c.budget = retry.NewBudget(c.share, c.floor)
	return c, nil
}

// Options returns both interceptors, for grpc.NewClient.
func (c *Client) Options() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(c.Unary), grpc.WithChainStreamInterceptor(c.Stream)}
}

// Unary is a grpc.UnaryClientInterceptor.
func (c *Client) Unary(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	call := &Call{Method: method, Message: request, Target: conn.Target(), ctx: ctx, out: true}
	left := c.maxWait
	if err := c.admit(call, &left); err != nil {
		return err
	}
	c.budget.Call()
	for try := 1; ; try++ {
		var trailer metadata.MD
		err := invoke(ctx, method, request, reply, conn, append(options[:len(options):len(options)], grpc.Trailer(&trailer))...)
		if err == nil {
			return nil
		}
		hint := c.readHint(call, err, trailer)
		if !c.again(call, err, hint, try, left) {
			return c.givenUp(call, err, hint)
		}
		refused := c.admit(call, &left)
		if refused == nil && hint.wait == 0 {
			// The server has not said when, or has said at once.
			wait := backoff.Wait(try, 0)
			if left < wait || admission.EndsWithin(call.ctx, wait) {
				return c.givenUp(call, err, hint)
			}
			refused = c.hold(call, wait, &left)
		}
		switch {
		case errors.Is(refused, headgate.ErrDenied):
			return c.givenUp(call, err, hint) // The server has told the client already, and why.
		case refused != nil:
			return refused
		}
	}
}

// backoff is how long a call waits before it is repeated, if its server has not said when.
var backoff = retry.Backoff{Base: 100 * time.Millisecond, Max: 10 * time.Second}

// again reports whether a call is repeated, and charges the budget for it.
func (c *Client) again(call *Call, err error, hint retryHint, try int, left time.Duration) bool {
	if hint.forbids || try > c.retries || hint.wait > left || call.ctx.Err() != nil {
		return false
	}
	switch code := status.Code(err); {
	case code == codes.ResourceExhausted && hint.given: // It was not carried out.
	case (code == codes.ResourceExhausted || code == codes.Unavailable) && c.idempotent != nil && c.idempotent(call):
	default:
		return false
	}
	return c.budget.Take()
}

// givenUp returns the error of a call that is not repeated any more. If the server does not want
// the call again, or if the call was repeated here as often as it may be, the error is marked for
// callers that pass it on.
func (c *Client) givenUp(call *Call, err error, hint retryHint) error {
	code := status.Code(err)
	if hint.forbids || c.retries > 0 && (code == codes.ResourceExhausted || code == codes.Unavailable) {
		return &finalError{err}
	}
	return err
}

// finalError is an error that no caller should retry.
type finalError struct{ error }

// Unwrap returns the error itself.
func (e *finalError) Unwrap() error { return e.error }

// GRPCStatus is for [status.FromError].
func (e *finalError) GRPCStatus() *status.Status { return status.Convert(e.error) }

// NoRetry reports whether a call behind a [Client] should not be retried after this error, because
// its server has said so, or because the Client has already retried it.
func NoRetry(err error) bool {
	_, final := errors.AsType[*finalError](err)
	return final
}

// PassOn is for servers whose calls end with the error of a call to another server. If that call
// should not be retried, PassOn tells this server's own client so, in the trailer by which gRPC
// stops its retries. It returns the error.
func PassOn(ctx context.Context, err error) error {
	if NoRetry(err) {
		// SetTrailer fails only outside of a call.
		_ = grpc.SetTrailer(ctx, metadata.Pairs(pushback, "-1"))
	}
	return err
}

// Stream is a grpc.StreamClientInterceptor.
func (c *Client) Stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	call := &Call{Method: method, Target: conn.Target(), ctx: ctx, out: true}
	left := c.maxWait
	if err := c.admit(call, &left); err != nil {
		return nil, err
	}
	stream, err := open(ctx, desc, conn, method, options...)
	if err != nil {
		c.readHint(call, err, nil)
		return nil, err
	}
	return &clientStream{stream, c, call}, nil
}

// clientStream limits the messages that are sent, and notices how the stream ends.
type clientStream struct {
	grpc.ClientStream
	limits *Client
	call   *Call
}

// SendMsg implements [grpc.ClientStream].
func (s *clientStream) SendMsg(m any) error {
	c := &Call{Method: s.call.Method, Message: m, Target: s.call.Target, ctx: s.Context(), out: true}
	if err := s.limits.fit(c, s.limits.messages, s.limits.maxWait); err != nil {
		return err
	}
	return s.ClientStream.SendMsg(m)
}

// RecvMsg implements [grpc.ClientStream].
func (s *clientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil {
		if hint := s.limits.readHint(s.call, err, s.Trailer()); hint.forbids {
			return &finalError{err}
		}
	}
	return err
}

// admit holds a call back until the server is ready for it and it fits its limits. It subtracts the
// time from left.
func (c *Client) admit(call *Call, left *time.Duration) error {
	for c.maxPause > 0 {
		pause := c.pauses.left(c.pauseKey(call))
		if pause <= 0 {
			break
		}
		// Not all waiting calls should go at the same moment.
		wait := pause + rand.N(pause/10+1)
		if wait > *left || admission.EndsWithin(call.ctx, wait) {
			return c.refuse(call, newStatus(codes.ResourceExhausted, ReasonPaused, fmt.Sprintf("The server wants no such call for another %v.", pause.Round(time.Millisecond)), retryIn(pause)),
				headgate.Decision{RetryAfter: pause})
		}
		if err := c.hold(call, wait, left); err != nil {
			return err
		}
	}
	began := time.Now()
	err := c.fit(call, c.calls, *left)
	*left -= time.Since(began)
	return err
}

// fit holds a call or a message back until it fits its limits, for at most the given time.
func (c *Client) fit(call *Call, limits *admission.Gate[*Call], left time.Duration) error {
	if !limits.Limits() {
		return nil
	}
	a := limits.Try(call.ctx, call, left)
	defer a.Free()
	switch a.Outcome {
	case admission.Passed, admission.Open:
		return nil
	case admission.Denied:
		return c.refuse(call, Exhausted(&a.Verdict), *a.Verdict.Deciding())
	}
	return undecided(a)
}

func (c *Client) hold(call *Call, d time.Duration, left *time.Duration) error {
	if err := admission.Sleep(call.ctx, d); err != nil {
		return status.FromContextError(err).Err()
	}
	*left -= d
	if c.hooks.Waited != nil {
		c.hooks.Waited(call, d)
	}
	return nil
}

// refuse returns the error of a call that is not made.
func (c *Client) refuse(call *Call, err error, d headgate.Decision) error {
	refused := &deniedError{status.Convert(err), &headgate.DeniedError{Decision: d}}
	if c.hooks.Denied != nil {
		c.hooks.Denied(call, refused)
	}
	return refused
}

// retryHint is what a server says about a retry of a call that it has refused.
type retryHint struct {
	given   bool          // it says how long to wait
	wait    time.Duration // before the retry
	forbids bool          // the call is not to be retried
}

// readHint records when the server will take calls again, and returns its hint.
func (c *Client) readHint(call *Call, err error, trailer metadata.MD) (h retryHint) {
	pause, ok := retryAfter(err)
	if pushed := trailer.Get(pushback); len(pushed) > 0 {
		// gRPC reads it in the same way: anything that is not a number from 0 on means never.
		ms, bad := strconv.ParseUint(pushed[0], 10, 31)
		if h.forbids = bad != nil; !h.forbids && !ok {
			pause, ok = time.Duration(ms)*time.Millisecond, true
		}
	}
	if !ok || c.maxPause == 0 {
		return h
	}
	h.given, h.wait = true, pause
	if pause = min(pause, c.maxPause); pause > 0 {
		c.pauses.add(c.pauseKey(call), pause)
		if c.hooks.Paused != nil {
			c.hooks.Paused(call, pause)
		}
	}
	return h
}

// pauseKey is the key for which a pause holds.
func (c *Client) pauseKey(call *Call) string {
	key := ""
	for _, f := range c.pauseBy.of.Facts {
		key += c.Found(f).Find(call) + "\x00"
	}
	return key
}

// deniedError is a denial by the client itself: it is a status like any other, and a
// [*headgate.DeniedError].
type deniedError struct {
	status *status.Status
	denied *headgate.DeniedError
}

// Error is the status's text.
func (e *deniedError) Error() string { return e.status.Err().Error() }

// GRPCStatus is for [status.FromError].
func (e *deniedError) GRPCStatus() *status.Status { return e.status }

// Unwrap is for errors.Is(err, headgate.ErrDenied).
func (e *deniedError) Unwrap() error { return e.denied }

// pauses have, for each key, the time until which calls stay away.
type pauses struct {
	mu    sync.Mutex // guards until
	until map[string]time.Time
}

// maxPauses is how many pauses are kept. When there are more, those that are over are forgotten,
// and further ones are not recorded.
const maxPauses = 4096

func (p *pauses) left(key string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	until, ok := p.until[key]
	if !ok {
		return 0
	}
	left := time.Until(until)
	if left <= 0 {
		delete(p.until, key)
	}
	return left
}

func (p *pauses) add(key string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if len(p.until) >= maxPauses {
		for k, until := range p.until {
			if !now.Before(until) {
				delete(p.until, k)
			}
		}
		if len(p.until) >= maxPauses {
			return
		}
	}
	if p.until == nil {
		p.until = make(map[string]time.Time)
	}
	if until := now.Add(d); until.After(p.until[key]) {
		p.until[key] = until
	}
}

// The defaults of the options of [NewClient].
const (
	// DefaultMaxWait is the default of [MaxWait].
	DefaultMaxWait = 30 * time.Second
	// DefaultMaxPause is the default of [MaxPause].
	DefaultMaxPause = time.Minute
)

// ClientHooks are called when a client's interceptors have done something. Any of them may be nil.
// They run in the call's goroutine and must be quick.
type ClientHooks struct {
	// Waited is called for each call or message that was held back, with the time.
	Waited func(c *Call, d time.Duration)
	// Denied is called for each call or message that was not made, because of one of the client's
	// own limits, or because the server would take it later than it may wait.
	Denied func(c *Call, err error)
	// Paused is called when a server says how long calls should stay away.
	Paused func(c *Call, d time.Duration)
	// Failed is called for each error: the store did not answer, a unit could not
	// be given back.
	Failed func(c *Call, err error)
}

// ClientOption changes what [NewClient] makes.
type ClientOption func(*clientSettings)

type clientSettings struct {
	settings
	maxWait  time.Duration
	maxPause time.Duration
	pauseBy  Key

	retries    int
	idempotent func(*Call) bool
	share      float64
	floor      int
	hooks      ClientHooks
}

// ClientLimit binds every call that is made by the rules, with counters for the key, such as
// [ByTarget]. It may be given several times, with different keys. If one of all these rules denies
// a call, none is charged. A call that does not fit waits; see [MaxWait]. A call that lacks the
// entry by which a limit counts is not bound by it.
func ClientLimit(key Key, rules ...*headgate.Rule) ClientOption {
	return func(s *clientSettings) {
		s.limits = append(s.limits, admission.Binding[*Call]{Key: key.of, Rules: rules})
	}
}

// ClientMessageLimit binds every message that is sent over a stream.
func ClientMessageLimit(key Key, rules ...*headgate.Rule) ClientOption {
	return func(s *clientSettings) {
		s.messageLimits = append(s.messageLimits, admission.Binding[*Call]{Key: key.of, Rules: rules})
	}
}

// ClientCost sets how many units a call or a message takes: 1 to headgate.MaxCount, or 0 if it is
// not limited. A message is in the call's Message. The default is 1.
func ClientCost(cost func(*Call) int64) ClientOption {
	return func(s *clientSettings) {
		s.Needs("ClientCost", cost != nil)
		s.cost = cost
	}
}

// MaxWait sets the longest time for which a call or a message is held back: until it fits its
// limits, until the server is ready for it, and before it is repeated. If it would have to wait
// longer, or beyond its context's deadline, it is not made. It then ends with RESOURCE_EXHAUSTED,
// and errors.Is(err, headgate.ErrDenied) is true. The default is [DefaultMaxWait]; with 0 no call
// waits.
func MaxWait(d time.Duration) ClientOption {
	return func(s *clientSettings) {
		if d < 0 {
			s.Bad("MaxWait", "MaxWait is %v, must not be negative", d)
		}
		s.maxWait = d
	}
}

// MaxPause sets the longest time for which a server's RetryInfo keeps calls away. The default is
// [DefaultMaxPause]; with 0 RetryInfo is ignored.
func MaxPause(d time.Duration) ClientOption {
	return func(s *clientSettings) {
		if d < 0 {
			s.Bad("MaxPause", "MaxPause is %v, must not be negative", d)
		}
		s.maxPause = d
	}
}

// PauseBy sets for which calls a server's RetryInfo holds. The default is the same method at the
// same target. With [ByTarget] it holds for all calls to the target.
func PauseBy(key Key) ClientOption {
	return func(s *clientSettings) {
		if !key.of.Made {
			s.Bad("PauseBy", "PauseBy has an empty Key; make one with a By function, Everyone or Combine")
		}
		s.pauseBy = key
	}
}

// Retries sets how often a unary call may be repeated that the server has refused with
// RESOURCE_EXHAUSTED and a RetryInfo. It is repeated at the time in the RetryInfo, if it may wait
// that long. Such a call was not carried out. For other calls see [RetryIdempotent]. A call is not
// repeated if its server says so, by a trailer grpc-retry-pushback-ms of -1, nor if [RetryBudget]
// is used up. The default is 0.
func Retries(n int) ClientOption {
	return func(s *clientSettings) {
		const most = 100
		if n < 0 || n > most {
			s.Bad("Retries", "Retries is %d, must be 0 to %d", n, most)
		}
		s.retries = n
	}
}

// RetryIdempotent says which calls may be carried out more than once. With [Retries] they are also
// repeated after UNAVAILABLE, and after RESOURCE_EXHAUSTED without a RetryInfo: at the time that
// the server names, or otherwise after a random time of up to 100 ms, which doubles with each try
// up to 10 s. The default is none.
func RetryIdempotent(may func(*Call) bool) ClientOption {
	return func(s *clientSettings) {
		s.Needs("RetryIdempotent", may != nil)
		s.idempotent = may
	}
}

// RetryBudget bounds retries to a share of calls, above 0 to 1, plus a number of retries that are
// always allowed. So retries do not make an overload worse. The default is a share of 0.1 and a
// floor of 10.
func RetryBudget(share float64, floor int) ClientOption {
	return func(s *clientSettings) {
		if !(share > 0 && share <= 1) {
			s.Bad("RetryBudget", "RetryBudget has a share of %v, must be above 0 and at most 1", share)
		}
		if floor < 0 {
			s.Bad("RetryBudget", "RetryBudget has a floor of %d, must not be negative", floor)
		}
		s.share, s.floor = share, floor
	}
}

// OnClientStoreError says what happens to a call when the store cannot decide. The
// default is [FailOpen].
func OnClientStoreError(choice Failure) ClientOption {
	return func(s *clientSettings) { s.Failure = choice }
}

// ObserveClient sets the [ClientHooks].
func ObserveClient(hooks ClientHooks) ClientOption {
	return func(s *clientSettings) { s.hooks = hooks }
}
