package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
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
	if res.Close || res.StatusCode == http.StatusSwitchingProtocols {
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
