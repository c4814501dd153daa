package serverbench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strconv"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
)

// loop is a closed loop over plain connections. The messages are written out beforehand, and
// answers are read with as little work as will do, so that the generator leaves the machine to the
// server.
type loop struct {
	connections int
	// messages are sent in turn. There are so many answers to each, which are all read before
	// the next message is sent.
	messages [][]byte
	answers  int
	// read reads one answer, and is an error if that is not right.
	read func(r *bufio.Reader) error
}

// overHTTP sends requests of HTTP/1.1 over all connections of the plan.
func overHTTP(plan measure.Plan, requests [][]byte) load {
	l := loop{plan.Callers, requests, 1, skipHTTP}
	return l.run
}

// run is the [load] of the loop. The times are those of whole messages.
func (l *loop) run(ctx context.Context, addr string, d time.Duration) (s measure.Sample, err error) {
	end := time.Now().Add(d)
	took := make([][]time.Duration, l.connections)
	err = measure.Each(ctx, l.connections, func(ctx context.Context, w int) error {
		return talk(ctx, addr, func(c net.Conn, r *bufio.Reader) (err error) {
			took[w], err = l.converse(ctx, c, r, w*len(l.messages)/l.connections, end)
			return err
		})
	})
	if err != nil {
		return s, err
	}
	err = s.Record(took...)
	s.Done *= l.answers
	return s, err
}

// converse sends one message after the other over one connection until end, and returns how long
// each took to be answered.
func (l *loop) converse(ctx context.Context, c net.Conn, r *bufio.Reader, from int, end time.Time) (took []time.Duration, err error) {
	if err := c.SetDeadline(end.Add(30 * time.Second)); err != nil {
		return nil, err
	}
	at := time.Now()
	for i := from; ctx.Err() == nil && (len(took) == 0 || at.Before(end)); i++ {
		if _, err := c.Write(l.messages[i%len(l.messages)]); err != nil {
			return took, fmt.Errorf("sending: %w", err)
		}
		for range l.answers {
			if err := l.read(r); err != nil {
				return took, err
			}
		}
		now := time.Now()
		took = append(took, now.Sub(at))
		at = now
	}
	return took, nil
}

// talk has say talk over a connection.
func talk(ctx context.Context, addr string, say func(net.Conn, *bufio.Reader) error) (err error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, c.Close()); err != nil {
			err = fmt.Errorf("%s: %w", addr, err)
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	return say(c, bufio.NewReaderSize(c, 64<<10))
}

// skipHTTP reads one answer of HTTP/1.1 with a Content-Length. Anything but
// 200 is an error that shows the answer.
func skipHTTP(r *bufio.Reader) error {
	status, length, err := readHead(r)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(r, int64(min(length, 500))))
		return errors.Join(fmt.Errorf("the server answered %d: %s", status, text), err)
	}
	return skipBody(r, length)
}

// readStatus reads one answer of HTTP/1.1 with a Content-Length, and returns its
// status.
func readStatus(r *bufio.Reader) (int, error) {
	status, length, err := readHead(r)
	if err != nil {
		return 0, err
	}
	return status, skipBody(r, length)
}

func skipBody(r *bufio.Reader, length int) error {
	if _, err := r.Discard(length); err != nil {
		return fmt.Errorf("reading the answer's body of %d bytes: %w", length, err)
	}
	return nil
}

// readHead reads an answer up to its body, and returns how long that is.
func readHead(r *bufio.Reader) (status, length int, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return 0, 0, fmt.Errorf("reading the answer: %w", err)
	}
	code, ok := bytes.CutPrefix(line, []byte("HTTP/1.1 "))
	if ok && len(code) > 3 {
		status, err = strconv.Atoi(string(code[:3]))
	}
	if status == 0 || err != nil {
		return 0, 0, fmt.Errorf("the answer begins with %q", line)
	}
	length = -1
	for {
		header, err := r.ReadSlice('\n')
		if err != nil {
			return 0, 0, fmt.Errorf("reading the answer's headers: %w", err)
		}
		if len(header) <= len("\r\n") {
			break
		}
		name, value, _ := bytes.Cut(header, []byte(":"))
		if bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(textproto.TrimString(string(value))); err != nil || length < 0 {
				return 0, 0, fmt.Errorf("the answer's Content-Length is %q", value)
			}
		}
	}
	if length < 0 {
		return 0, 0, errors.New("the answer has no Content-Length")
	}
	return status, length, nil
}
