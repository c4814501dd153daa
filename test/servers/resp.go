package servers

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// The bounds of what readReply takes from a server. They are far above what a
// test asks for, and keep a mistaken length from taking all memory.
const (
	maxBulk  = 64 << 20
	maxArray = 1 << 20
	maxDepth = 16
)

// ReplyError is an error that the server answered with, such as "NOSCRIPT No
// matching script".
type ReplyError string

// Error is the server's text.
func (e ReplyError) Error() string { return string(e) }

// errProtocol marks an answer that is not RESP2.
var errProtocol = errors.New("servers: not a reply in the Redis protocol")

// conn is one connection to a server, for one command after another.
type conn struct {
	net.Conn
	replies *bufio.Reader
}

// dial connects, over TLS if there is a config for it, and authenticates if there
// is a password. The context bounds the connection's whole life.
func dial(ctx context.Context, addr, password string, config *tls.Config) (*conn, error) {
	connect := new(net.Dialer).DialContext
	if config != nil {
		connect = (&tls.Dialer{Config: config}).DialContext
	}
	c, err := connect(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("servers: %w", err)
	}
	context.AfterFunc(ctx, func() { c.Close() })
	rc := &conn{Conn: c, replies: bufio.NewReader(c)}
	if password != "" {
		if _, err := rc.do("AUTH", password); err != nil {
			c.Close()
			return nil, err
		}
	}
	return rc, nil
}

// do sends a command and reads its reply.
func (c *conn) do(args ...string) (any, error) {
	if _, err := io.WriteString(c, command(args)); err != nil {
		return nil, fmt.Errorf("servers: sending %s: %w", args[0], err)
	}
	reply, err := readReply(c.replies, maxDepth)
	if err != nil {
		return nil, fmt.Errorf("servers: %s: %w", args[0], err)
	}
	if failed, ok := reply.(ReplyError); ok {
		return nil, fmt.Errorf("servers: %s: %w", args[0], failed)
	}
	return reply, nil
}

// command writes a command as an array of bulk strings.
func command(args []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}

// readReply reads one RESP2 value: string, int64, nil, ReplyError or []any, with
// arrays nested at most depth deep.
func readReply(r *bufio.Reader, depth int) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("reading the reply: %w", err)
	}
	kind, text, ok := cut(line)
	if !ok {
		return nil, fmt.Errorf("%w: line %q", errProtocol, line)
	}
	switch kind {
	case '+':
		return text, nil
	case '-':
		return ReplyError(text), nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: line %q has no number", errProtocol, line)
	}
	switch {
	case kind == ':':
		return n, nil
	case kind == '$' && n == -1, kind == '*' && n == -1:
		return nil, nil
	case kind == '$' && n >= 0 && n <= maxBulk:
		return readBulk(r, int(n))
	case kind == '*' && n >= 0 && n <= maxArray && depth > 0:
		return readArray(r, int(n), depth-1)
	}
	return nil, fmt.Errorf("%w: line %q; a string has up to %d bytes, an array up to %d elements, %d deep",
		errProtocol, line, maxBulk, maxArray, maxDepth)
}

// cut splits a line into its first byte and the rest without the line's end.
func cut(line string) (kind byte, text string, ok bool) {
	text, ok = strings.CutSuffix(line, "\r\n")
	if !ok || text == "" {
		return 0, "", false
	}
	return text[0], text[1:], true
}

func readBulk(r *bufio.Reader, n int) (any, error) {
	b := make([]byte, n+2)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, fmt.Errorf("reading %d bytes: %w", n, err)
	}
	if b[n] != '\r' || b[n+1] != '\n' {
		return nil, fmt.Errorf("%w: %q after a string of %d bytes", errProtocol, b[n:], n)
	}
	return string(b[:n]), nil
}

func readArray(r *bufio.Reader, n, depth int) (any, error) {
	// The announced length is believed only as far as elements do come.
	elements := make([]any, 0, min(n, 64))
	for range n {
		e, err := readReply(r, depth)
		if err != nil {
			return nil, err
		}
		elements = append(elements, e)
	}
	return elements, nil
}
