package servicebench

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
	"sync"
	"time"
)

// request is one POST /v1/check as it goes over the wire. It is written out in
// full beforehand, and the answer is read with as little work as will do, so
// that the generator leaves the machine to the server.
func request(host, body string) []byte {
	return fmt.Appendf(nil, "POST /v1/check HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		host, len(body), body)
}

// load keeps so many connections busy with the requests, in turn, for about d,
// and returns how many were answered with 200.
func load(ctx context.Context, addr string, connections int, requests [][]byte, d time.Duration) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg     sync.WaitGroup
		counts = make([]int, connections)
		end    = time.Now().Add(d)
	)
	for w := range connections {
		wg.Go(func() {
			var err error
			counts[w], err = converse(ctx, addr, requests, w*len(requests)/connections, end)
			if err != nil {
				cancel(fmt.Errorf("servicebench: %s: %w", addr, err)) // Later causes are ignored.
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range counts {
		sum += n
	}
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	return sum, nil
}

// converse sends one request after the other over one connection until end.
func converse(ctx context.Context, addr string, requests [][]byte, from int, end time.Time) (done int, err error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.SetDeadline(end.Add(30 * time.Second)); err != nil {
		return 0, err
	}
	r := bufio.NewReaderSize(c, 16<<10)
	for ctx.Err() == nil && (done == 0 || time.Now().Before(end)) {
		if _, err := c.Write(requests[(from+done)%len(requests)]); err != nil {
			return done, fmt.Errorf("sending: %w", err)
		}
		if err := skipAnswer(r); err != nil {
			return done, err
		}
		done++
	}
	return done, nil
}

// skipAnswer reads one answer of HTTP/1.1 with a Content-Length. Anything but
// 200 is an error that shows the answer.
func skipAnswer(r *bufio.Reader) error {
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

// ReadStatus reads one answer of HTTP/1.1 with a Content-Length, and returns its
// status.
func ReadStatus(r *bufio.Reader) (int, error) {
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
