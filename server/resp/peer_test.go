package resp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/memory"
)

// samplePolicy has a rule of every kind that the commands treat differently.
func samplePolicy(t testing.TB, more ...policy.Rule) *policy.Set {
	t.Helper()
	set, err := policy.New(append([]policy.Rule{
		{Limits: headgate.MustRule("mail", headgate.Per(5, time.Hour)), Direct: true},
		{
			Limits: headgate.MustRule("login", headgate.Sliding(20, time.Minute), headgate.Sliding(5, 3*time.Second)),
			Match:  []policy.Condition{policy.Equal("route", "POST /login"), policy.Absent("staff")},
			Per:    []policy.Part{{Entry: "user"}},
			Soft:   80,
		},
		{Limits: headgate.MustRule("cost", headgate.PerMinute(10)), Direct: true},
		{Limits: headgate.MustRule("tried", headgate.PerMinute(2)), Direct: true, Mode: policy.ModeShadow},
		{Limits: headgate.MustRule("paced", headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 10, Period: time.Second}), Direct: true},
		{
			Limits: headgate.MustRule("tries", headgate.Per(5, time.Hour)), Direct: true,
			ChargeOn: policy.Statuses{{First: 401, Last: 401}}, Reservation: policy.Reservation{For: 5 * time.Second},
		},
		{Limits: headgate.MustRule("words", headgate.PerMinute(100)), Per: []policy.Part{{Entry: "id"}}},
	}, more...), policy.Denied(policy.ListEntry{Name: "scanners", Match: []policy.Condition{policy.Prefix("route", "GET /wp-")}}))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// clock is a store's clock that tests set.
type clock struct{ micros atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.micros.Store(1_763_712_000_000_000)
	return c
}

func (c *clock) add(d time.Duration) { c.micros.Add(d.Microseconds()) }

// over makes a Decider of a policy and a store.
func over(set *policy.Set, store headgate.Store) decide.Decider {
	p := decide.Policy{Set: set, Version: 1, Hash: "5ec2e7"}
	return &decide.Over{Rules: func() decide.Policy { return p }, Store: store}
}

// start serves on a free port until the test ends.
func start(t testing.TB, d decide.Decider, o Options) (*Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if over, ok := d.(*decide.Over); ok && onStandby && !o.SideBySide {
		_, waits := over.Store.(*gate)
		o.Instant = !waits
	}
	s := New(d, o)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		s.running.Wait()
	})
	return s, l.Addr().String()
}

// startSample serves the sample policy from memory.
func startSample(t testing.TB, o Options) (*client, *clock) {
	t.Helper()
	c := newClock()
	_, addr := start(t, over(samplePolicy(t), memory.New(memory.Clock(c.micros.Load))), o)
	return dial(t, addr), c
}

// client is the simplest client that there can be.
type client struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &client{t, c, bufio.NewReader(c)}
}

// write sends bytes as they are.
func (c *client) write(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// answer reads one answer.
func (c *client) answer() string {
	c.t.Helper()
	text, err := show(c.r)
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

// try sends bytes and returns the answer, if there is one.
func (c *client) try(text string) (string, error) {
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	return show(c.r)
}

// do sends a command and returns the answer.
func (c *client) do(line string) string {
	c.t.Helper()
	c.write(wireLine(line))
	return c.answer()
}

// wireLine is wire for arguments that are separated by blanks, with "_" in place of
// an empty one, and "·" of a blank within one.
func wireLine(line string) string {
	args := strings.Fields(line)
	for i := range args {
		if args[i] == "_" {
			args[i] = ""
		}
		args[i] = strings.ReplaceAll(args[i], "·", " ")
	}
	return wire(args...)
}

// ended reports whether the server has closed the connection.
func (c *client) ended() bool {
	_, err := c.r.ReadByte()
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
}

// wire writes a command as clients do.
func wire(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

// show reads a value of RESP2 or RESP3 and writes it as text: [1 two nil] for an
// array, {name: value} for a map.
func show(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	if len(line) < 3 || !strings.HasSuffix(line, "\r\n") {
		return "", fmt.Errorf("the line %q is not one of RESP", line)
	}
	kind, text := line[0], line[1:len(line)-2]
	switch kind {
	case '+', '-', ':':
		if strings.ContainsAny(text, "\r\n") {
			return "", fmt.Errorf("the line %q holds an end of line", line)
		}
		return strings.TrimPrefix(string(kind)+text, ":"), nil
	case '#':
		return map[string]string{"t": "true", "f": "false"}[text], nil
	case '_':
		return "nil", nil
	}
	n, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return "", err
	case n == -1 && kind == '$':
		return "nil", nil
	case kind == '$':
		b := make([]byte, n+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return "", err
		}
		if string(b[n:]) != "\r\n" {
			return "", fmt.Errorf("after %d bytes there is %q", n, b[n:])
		}
		return string(b[:n]), nil
	case kind != '*' && kind != '%':
		return "", fmt.Errorf("the line %q is of an unknown kind", line)
	}
	return showMany(r, kind, n)
}

func showMany(r *bufio.Reader, kind byte, n int) (string, error) {
	parts := make([]string, n)
	for i := range parts {
		name := ""
		if kind == '%' {
			text, err := show(r)
			if err != nil {
				return "", err
			}
			name = text + ": "
		}
		value, err := show(r)
		if err != nil {
			return "", err
		}
		parts[i] = name + value
	}
	if kind == '%' {
		return "{" + strings.Join(parts, ", ") + "}", nil
	}
	return "[" + strings.Join(parts, " ") + "]", nil
}

// exchange is a command and what its answer must be: in full or, where it ends with
// "…", at its beginning.
type exchange struct{ send, want string }

func (c *client) exchanges(list []exchange) {
	c.t.Helper()
	for _, e := range list {
		got := c.do(e.send)
		begin, open := strings.CutSuffix(e.want, "…")
		if got != e.want && !(open && strings.HasPrefix(got, begin)) {
			c.t.Errorf("%s\nis answered with %s\nwant %s", e.send, got, e.want)
		}
	}
}

// broken is a store that does not answer.
type broken struct{ err error }

func (b broken) Take(context.Context, headgate.Op, []headgate.Check, []headgate.Decision) ([]headgate.Decision, error) {
	return nil, b.err
}
