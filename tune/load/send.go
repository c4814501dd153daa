package load

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/headgate/headgate/httplimit/outbound"
)

// sender sends one request after the other.
type sender interface {
	// send sends a request and reads its answer to the end. It returns at the deadline, or
	// when the context is done, which ends the whole measurement.
	send(ctx context.Context, t *Target, deadline time.Time) answer
	close()
}

// maxHead is the longest head of an answer, in bytes.
const maxHead = 1 << 20

// http1 is one connection that is opened when it is needed. One goroutine writes and reads,
// so that no time is lost between several of them.
type http1 struct {
	dialer *dialer
	fresh  bool
	conn   net.Conn
	limit  *io.LimitedReader // of what the connection may send yet
	in     *bufio.Reader
	stop   func() bool
	used   time.Time // when the last answer came
}

// stale is the shortest time after which servers are expected to close an idle connection.
const stale = 500 * time.Millisecond

func (h *http1) send(ctx context.Context, t *Target, deadline time.Time) answer {
	idle := h.conn != nil && time.Since(h.used) > stale
	a, err := h.try(ctx, t, deadline)
	h.used = time.Now()
	// The server may have closed the idle connection before it got this request. That is no failure
	// of the service.
	if idle && errors.Is(err, errUnheard) && ctx.Err() == nil {
		a, err = h.try(ctx, t, deadline)
	}
	if err == nil {
		return a
	}
	if ctx.Err() != nil {
		return answer{kind: abandoned, code: noLeisure, class: noLeisure}
	}
	return unanswered(err)
}

// errUnheard is the error for a connection that ended before any byte of an answer.
var errUnheard = errors.New("headgate: load: the connection has ended before the answer")

// try sends a request. If there is an error, the connection is closed.
func (h *http1) try(ctx context.Context, t *Target, deadline time.Time) (a answer, err error) {
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	if h.conn == nil {
		if err := h.open(ctx, deadline); err != nil {
			return a, err
		}
	}
	if err := h.conn.SetDeadline(deadline); err != nil {
		return a, unheard(err)
	}
	if err := ctx.Err(); err != nil {
		return a, err // It has set the deadline before.
	}
	if _, err := h.conn.Write(t.text); err != nil {
		return a, unheard(err)
	}
	h.limit.N = maxHead
	if _, err := h.in.Peek(1); err != nil {
		return a, unheard(err)
	}
	if redis(t.url.Scheme) {
		if a, err = answeredRESP(h.in, t.Name); err == nil && h.fresh {
			h.close()
		}
		return a, err
	}
	var res *http.Response
	for res == nil || res.StatusCode < 200 && res.StatusCode != http.StatusSwitchingProtocols {
		if res, err = http.ReadResponse(h.in, t.request); err != nil {
			return a, h.head(err)
		}
	}
	h.limit.N = 1 << 62
	_, err = io.Copy(io.Discard, res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return a, err
	}
	if h.fresh || res.Close || res.StatusCode == http.StatusSwitchingProtocols {
		h.close()
	}
	return answered(res.StatusCode, res.Header), nil
}

// unheard marks an error with errUnheard, unless it is a timeout.
func unheard(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return err
	}
	return fmt.Errorf("%w: %w", errUnheard, err)
}

// head is the error of the head of an answer that cannot be read.
func (h *http1) head(err error) error {
	var op net.Error
	if errors.As(err, &op) || errors.Is(err, io.ErrUnexpectedEOF) && h.limit.N > 0 {
		return err
	}
	return fmt.Errorf("%w: %w", errMalformed, err)
}

func (h *http1) open(ctx context.Context, deadline time.Time) error {
	within, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	conn, err := h.dialer.dial(within)
	if err != nil {
		return err
	}
	h.conn = conn
	h.limit = &io.LimitedReader{R: conn}
	h.in = bufio.NewReaderSize(h.limit, 4<<10)
	// It ends what the connection waits for.
	h.stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return nil
}

func (h *http1) close() {
	if h.conn != nil {
		h.stop()
		_ = h.conn.Close() // Nothing more is wanted of it.
	}
	h.conn = nil
}

// http2 sends requests over connections that it shares with others of its kind.
type http2 struct {
	transport *http.Transport
	fresh     bool
}

// newTransport returns a transport that speaks HTTP/2 only.
func newTransport(d *dialer) *http.Transport {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := d.dial(ctx)
		if secure, ok := conn.(*tls.Conn); ok && secure.ConnectionState().NegotiatedProtocol != "h2" {
			return nil, errors.Join(errMalformed, secure.Close())
		}
		return conn, err
	}
	t := &http.Transport{
		Protocols: new(http.Protocols), DialContext: dial, DialTLSContext: dial, DisableCompression: true,
		MaxResponseHeaderBytes: maxHead,
	}
	t.Protocols.SetHTTP2(true)
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}

func (h *http2) send(ctx context.Context, t *Target, deadline time.Time) answer {
	within, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	request := t.request.WithContext(within)
	if len(t.body) > 0 {
		request.Body = io.NopCloser(bytes.NewReader(t.body))
	}
	transport := h.transport
	if h.fresh {
		transport = transport.Clone()
		defer transport.CloseIdleConnections()
	}
	res, err := transport.RoundTrip(request)
	var message bytes.Buffer
	if err == nil {
		into := io.Discard
		if t.read != nil {
			into = &message
		}
		_, err = io.Copy(into, res.Body)
		err = errors.Join(err, res.Body.Close())
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return answer{kind: abandoned, code: noLeisure, class: noLeisure}
	case err != nil && within.Err() != nil:
		return answer{kind: timedOut, code: noTime, class: noTime}
	case err != nil:
		return unanswered(err)
	case t.grpc:
		return t.answeredGRPC(res, message.Bytes())
	}
	return answered(res.StatusCode, res.Header)
}

// close does nothing: the client closes the connections, which others use as well.
func (h *http2) close() {}

// ErrRemote is the error of a target that is not on this machine, unless [Options.Remote]
// allows that.
var ErrRemote = errors.New("headgate: the target is not a loopback address")

// ErrUnreachable is the error of a target that does not accept connections.
var ErrUnreachable = errors.New("headgate: the target cannot be reached")

// dialer opens connections to one host. It resolves the name once, so that resolving is not
// measured, and so that a later answer cannot lead elsewhere.
type dialer struct {
	host  string
	addrs []string
	good  atomic.Int32 // the index of the address that was reached last
	tls   *tls.Config  // nil without TLS
	pipe  func(context.Context) (net.Conn, error)
}

// newDialer resolves the host of a URL.
func newDialer(ctx context.Context, u *url.URL, o *Options, protocols ...string) (*dialer, error) {
	d := &dialer{host: u.Host, pipe: o.pipe}
	if u.Scheme == "https" || u.Scheme == "rediss" {
		// Whoever measures a server of their own may not have a certificate for it.
		d.tls = &tls.Config{ServerName: u.Hostname(), InsecureSkipVerify: o.Insecure, NextProtos: protocols, MinVersion: tls.VersionTLS12} //nolint:gosec // G402: only if the caller asks for it.
	}
	if d.pipe != nil {
		return d, nil
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "redis": "6379", "rediss": "6379"}[u.Scheme]
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	for _, ip := range ips {
		if ip = ip.Unmap(); !ip.IsLoopback() && !o.Remote {
			if _, err := netip.ParseAddr(u.Hostname()); err == nil {
				return nil, fmt.Errorf("%w: %s", ErrRemote, ip)
			}
			return nil, fmt.Errorf("%w: %s is %s", ErrRemote, u.Hostname(), ip)
		}
		d.addrs = append(d.addrs, net.JoinHostPort(ip.String(), port))
	}
	return d, nil
}

// dial opens a connection. It begins with the address that was reached last.
func (d *dialer) dial(ctx context.Context) (conn net.Conn, err error) {
	if d.pipe != nil {
		return d.pipe(ctx)
	}
	var plain net.Dialer
	good := d.good.Load()
	for i := range d.addrs {
		n := (int(good) + i) % len(d.addrs)
		if conn, err = plain.DialContext(ctx, "tcp", d.addrs[n]); err == nil {
			d.good.Store(int32(n))
			break
		}
	}
	if err != nil || d.tls == nil {
		return conn, err
	}
	secure := tls.Client(conn, d.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secure, nil
}

// reach returns an error if nobody accepts a connection.
func (d *dialer) reach(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := d.dial(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return conn.Close()
}

// kind is a class of results of a request.
type kind uint8

const (
	// served is an answer with a status below 400.
	served kind = iota
	// limited is a refusal by a limiter: 429, or gRPC's RESOURCE_EXHAUSTED.
	limited
	// failed is any other answer.
	failed
	// timedOut means that there was no answer in time.
	timedOut
	// broken means that there was no answer, for another reason.
	broken
	// abandoned means that there was no answer because the measurement was ended.
	abandoned
)

// answer is the result of a request.
type answer struct {
	kind kind
	// code is the status that is counted, and class the group whose latencies are measured
	// together. Without an answer, both are the reason.
	code, class string
	status      int // of HTTP
	header      http.Header
	// inMessage is what the message says of the limit; nil if only the header may say something.
	inMessage *Hint
}

// hint is what the answer says of the limit.
func (a *answer) hint() Hint {
	if a.inMessage != nil {
		return *a.inMessage
	}
	return outbound.ReadHint(a.status, a.header, time.Now())
}

// The reasons why there is no answer.
const (
	noTime    = "timeout"
	noServer  = "refused"
	noWhole   = "closed"
	noHTTP    = "malformed"
	noOther   = "other"
	noLeisure = "interrupted"
)

// answered returns the result for an HTTP answer.
func answered(status int, header http.Header) answer {
	a := answer{status: status, header: header, code: strconv.Itoa(status), class: strconv.Itoa(status/100) + "xx"}
	switch {
	case status == http.StatusTooManyRequests:
		a.kind, a.class = limited, "429"
	case status >= http.StatusBadRequest:
		a.kind = failed
	}
	return a
}

// grpcCodes are the names of gRPC's statuses.
var grpcCodes = []string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
	"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

// answeredGRPC returns the result for a gRPC answer, whose status is in the headers or the
// trailers. The message is empty unless the target reads it.
func (t *Target) answeredGRPC(res *http.Response, message []byte) answer {
	text := res.Trailer.Get("Grpc-Status")
	if text == "" {
		text = res.Header.Get("Grpc-Status")
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n >= len(grpcCodes) {
		if res.StatusCode == http.StatusOK {
			return answer{kind: broken, code: noHTTP, class: noHTTP}
		}
		return answered(res.StatusCode, res.Header)
	}
	a := answer{kind: failed, code: grpcCodes[n], class: "failed", status: res.StatusCode, header: res.Header}
	switch grpcCodes[n] {
	case "OK":
		const head = 5 // whether it is compressed, which it is not, and its length
		if t.read != nil && len(message) >= head {
			hint, err := t.read(message[head:])
			if err != nil {
				return answer{kind: broken, code: noHTTP, class: noHTTP}
			}
			return decided(hint, "OK", "OVER_LIMIT")
		}
		a.kind, a.class = served, "ok"
	case "RESOURCE_EXHAUSTED":
		a.kind, a.class, a.status = limited, "limited", http.StatusTooManyRequests
	}
	return a
}

// unanswered returns the result of a request that failed with an error.
func unanswered(err error) answer {
	var code string
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return answer{kind: timedOut, code: noTime, class: noTime}
	case errors.Is(err, errMalformed):
		code = noHTTP
	case errors.Is(err, syscall.ECONNREFUSED):
		code = noServer
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		code = noWhole
	default:
		code = noOther
	}
	return answer{kind: broken, code: code, class: code}
}

var errMalformed = errors.New("headgate: load: the answer is not HTTP, or its header is too long")
