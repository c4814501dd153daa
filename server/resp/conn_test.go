package resp

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store/memory"
)

// pipes is a listener of connections within the process, whose writes are counted:
// what is written at once is read at once.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

type counted struct {
	net.Conn
	writes atomic.Int64
}

func (c *counted) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	select {
	case <-p.done:
	default:
		close(p.done)
	}
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// pipe serves one connection within the process.
func pipe(t *testing.T, o Options) (*client, *counted) {
	t.Helper()
	p := &pipes{make(chan net.Conn), make(chan struct{})}
	s := New(over(samplePolicy(t), memory.New()), o)
	served := make(chan error, 1)
	go func() { served <- s.Serve(p) }()
	near, far := net.Pipe()
	c := &counted{Conn: far}
	p.conns <- c
	t.Cleanup(func() {
		near.Close()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	if err := near.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &client{t, near, bufio.NewReader(near)}, c
}

// What arrives together is answered together, in order.
func TestPipeline(t *testing.T) {
	for _, sideBySide := range []bool{false, true} {
		c, server := pipe(t, Options{SideBySide: sideBySide})
		var all strings.Builder
		const n = 60
		for i := range n {
			all.WriteString(wire("ECHO", fmt.Sprint(i)) + wire("HG.CHECK", "mail", fmt.Sprint(i%10)))
		}
		c.write(all.String())
		allowed := 0
		for i := range n {
			if got := c.answer(); got != fmt.Sprint(i) {
				t.Fatalf("answer %d is %s", i, got)
			}
			if got := c.answer(); strings.HasPrefix(got, "[allowed 1 ") {
				allowed++
			}
		}
		if allowed != 50 {
			t.Errorf("%d requests were allowed, want 50", allowed)
		}
		if writes := server.writes.Load(); writes != 1 {
			t.Errorf("the answers were sent in %d writes, want 1", writes)
		}
	}
}

// Commands may arrive in any pieces.
func TestPieces(t *testing.T) {
	c, _ := pipe(t, Options{})
	text := wire("ECHO", "one") + "PING\r\n" + wire("ECHO", strings.Repeat("x", 300)) + "\r\n" + "ECHO 'two three'\n"
	go func() {
		for i := range text {
			if _, err := c.Write([]byte{text[i]}); err != nil {
				return
			}
		}
	}()
	for _, want := range []string{"one", "+PONG", strings.Repeat("x", 300), "two three"} {
		if got := c.answer(); got != want {
			t.Errorf("answered %.20s…, want %.20s…", got, want)
		}
	}
}

// Buffers grow with what comes, and shrink again; nothing is lost on the way.
func TestSizes(t *testing.T) {
	c, _ := startSample(t, Options{})
	sizes := []int{1, 4000, 4096, 5000, 60_000, 3, 65_000, MaxCommand - 24, 10}
	for range 20 {
		sizes = append(sizes, 1)
	}
	sizes = append(sizes, MaxCommand-24, 2, 4090)
	for _, together := range []bool{false, true} {
		go func() {
			var all bytes.Buffer
			for i, n := range sizes {
				all.WriteString(wire("ECHO", strings.Repeat(string(rune('a'+i%26)), n)))
				if !together {
					if _, err := c.Write(all.Bytes()); err != nil {
						return
					}
					all.Reset()
				}
			}
			_, _ = c.Write(all.Bytes()) // What is missing, the reader notices.
		}()
		for i, n := range sizes {
			if got := c.answer(); got != strings.Repeat(string(rune('a'+i%26)), n) {
				t.Fatalf("%v: answer %d has %d bytes and begins with %.5s, want %d", together, i, len(got), got, n)
			}
		}
	}
	c.write("*2\r\n$4\r\nECHO\r\n$65513\r\n")
	if got := c.answer(); got != "-ERR Protocol error: a command has more than 65536 bytes" || !c.ended() {
		t.Errorf("a command that is too long is answered with %s", got)
	}
}

// What cannot be understood ends the connection, after what came before it.
func TestMalformed(t *testing.T) {
	_, addr := start(t, over(samplePolicy(t), memory.New()), Options{})
	c := dial(t, addr)
	c.write(wire("PING") + wire("HG.CHECK", "mail", "a") + "*1\r\n+what\r\n" + wire("HG.CHECK", "mail", "a"))
	for _, want := range []string{"+PONG", "[allowed 1 ", "-ERR Protocol error: expected '$', found '+': a command is an array of strings"} {
		if got := c.answer(); !strings.HasPrefix(got, want) {
			t.Errorf("answered %s, want %s", got, want)
		}
	}
	if !c.ended() {
		t.Error("the connection goes on")
	}
	// A web page makes a browser send commands.
	c = dial(t, addr)
	c.write("POST /\"hg.reset\" HTTP/1.1\r\nHost: localhost\r\n\r\nHG.CHECK mail a COST 4\r\n")
	if got := c.answer(); !strings.Contains(got, "HTTP") && !strings.Contains(got, "quotes") || !c.ended() {
		t.Errorf("a browser is answered with %s, and may go on", got)
	}
	if got := dial(t, addr).do("HG.PEEK mail a"); !strings.Contains(got, "remaining 4 ") {
		t.Errorf("more was taken than what was understood: %s", got)
	}
}

func TestDeadlines(t *testing.T) {
	short := Options{times: times{idle: 50 * time.Millisecond, handshake: 50 * time.Millisecond, read: 50 * time.Millisecond, write: 50 * time.Millisecond}}
	s, addr := start(t, over(samplePolicy(t), memory.New()), short)
	sooner(t, func() error {
		c := dial(t, addr)
		if got, err := c.try(wire("PING")); got != "+PONG" {
			return fmt.Errorf("before it is idle: %s, %w", got, err)
		}
		if !c.ended() {
			t.Error("an idle connection goes on")
		}
		return nil
	})
	sooner(t, func() error {
		c := dial(t, addr)
		one, err := c.try(wire("PING") + "*2\r\n$4\r\nEC")
		if err != nil {
			return err
		}
		two, err := c.try("")
		if one != "+PONG" || two != "-ERR the rest of the command did not arrive within 50ms" {
			return fmt.Errorf("half a command is answered with %s, %s, %w", one, two, err)
		}
		if !c.ended() {
			t.Error("after half a command it goes on")
		}
		return nil
	})
	// One that takes no answers: they do not fit into the sockets.
	c := dial(t, addr)
	go func() {
		text := []byte(strings.Repeat(wire("ECHO", strings.Repeat("x", 60_000)), 10))
		for {
			if _, err := c.Write(text); err != nil {
				return
			}
		}
	}()
	eventually(t, "the connection that takes no answers is closed", func() bool { return s.Connections() == 0 })

	short.Token = "0123456789abcdef"
	short.times.idle = time.Hour
	_, addr = start(t, over(samplePolicy(t), memory.New()), short)
	if c := dial(t, addr); !c.ended() {
		t.Error("one that never shows the token may stay")
	}
	var open *client
	sooner(t, func() error {
		open = dial(t, addr)
		if got, err := open.try(wireLine("AUTH " + short.Token)); got != "+OK" {
			return fmt.Errorf("%s, %w", got, err)
		}
		return nil
	})
	if c := dial(t, addr); !c.ended() {
		t.Error("one that never shows the token may stay")
	}
	if got := open.do("PING"); got != "+PONG" {
		t.Errorf("after the time for the token: %s", got)
	}
}

// sooner waits until an attempt succeeds that must be done within a short time: a
// machine that is slow at that moment may spoil one.
func sooner(t *testing.T, attempt func() error) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		err := attempt()
		if err == nil || t.Failed() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within 30s: %v", err)
		}
	}
}

// eventually waits for what must come.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30s: %s", what)
		}
	}
}

func TestTooManyConnections(t *testing.T) {
	log := new(locked)
	s, addr := start(t, over(samplePolicy(t), memory.New()), Options{MaxConnections: 2, Logger: slog.New(slog.NewTextHandler(log, nil))})
	one, two := dial(t, addr), dial(t, addr)
	if one.do("PING")+two.do("PING") != "+PONG+PONG" {
		t.Fatal("the first connections are not served")
	}
	for range 3 {
		c := dial(t, addr)
		if got := c.answer(); got != "-ERR max number of clients reached" || !c.ended() {
			t.Errorf("one too many is answered with %s", got)
		}
	}
	if s.Refused() != 3 || strings.Count(log.text(), "connections are refused") != 1 || !strings.Contains(log.text(), "most=2") {
		t.Errorf("%d were refused, and the log says\n%s", s.Refused(), log.text())
	}
	one.Close()
	eventually(t, "a connection is forgotten", func() bool { return s.Connections() == 1 })
	if got := dial(t, addr).do("PING"); got != "+PONG" {
		t.Errorf("after one has left: %s", got)
	}
}

// gate is a store that decides when it is let, in memory.
type gate struct {
	headgate.Store
	came chan struct{} // one element for each Take
	let  chan struct{}
}

func newGate() *gate {
	return &gate{memory.New(), make(chan struct{}, 1000), make(chan struct{})}
}

func (g *gate) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	g.came <- struct{}{}
	select {
	case <-g.let:
	case <-ctx.Done():
		return dst, fmt.Errorf("%w: %w", headgate.ErrUnavailable, ctx.Err())
	}
	return g.Store.Take(ctx, op, checks, dst)
}

// Checks of one pipeline are with the store at the same time, and everything else
// waits until they are done.
func TestSideBySide(t *testing.T) {
	g := newGate()
	_, addr := start(t, over(samplePolicy(t), g), Options{SideBySide: true})
	c := dial(t, addr)
	text := ""
	for i := range 5 {
		text += wire("HG.CHECK", "mail", fmt.Sprint(i), "COST", fmt.Sprint(i+1))
	}
	c.write(text + wire("HG.RESET", "mail", "1") + wire("CL.THROTTLE", "1", "1", "1", "1") + wire("HG.PEEK", "mail", "1"))
	for range 5 {
		<-g.came
	}
	select {
	case <-g.came:
		t.Fatal("the reset did not wait")
	default:
	}
	for range 5 {
		g.let <- struct{}{}
	}
	<-g.came
	g.let <- struct{}{}
	<-g.came
	<-g.came
	close(g.let)
	for i := range 5 {
		if got, want := c.answer(), fmt.Sprintf(" remaining %d ", 4-i); !strings.Contains(got, want) {
			t.Errorf("answer %d is %s, want %s", i, got, want)
		}
	}
	for _, want := range []string{"[mail]", "[0 2 1 -1 1]", "remaining 5 "} {
		if got := c.answer(); !strings.Contains(got, want) {
			t.Errorf("answered %s, want %s", got, want)
		}
	}
}

// A connection has no more goroutines than its share, and the server no more than
// there may be.
func TestWorkersAreBounded(t *testing.T) {
	g := newGate()
	s, addr := start(t, over(samplePolicy(t), g), Options{SideBySide: true})
	s.workers = make(chan struct{}, 3)
	c := dial(t, addr)
	c.write(strings.Repeat(wire("HG.PEEK", "mail", "a"), 50))
	for range 3 {
		<-g.came
	}
	close(g.let)
	for i := range 50 {
		if got := c.answer(); !strings.HasPrefix(got, "[allowed 1 ") {
			t.Errorf("answer %d is %s", i, got)
		}
	}
	eventually(t, "no workers are left", func() bool { return len(s.workers) == 0 })
}

// TestIdleWorkers: of the goroutines that have nothing left to decide, some are kept.
func TestIdleWorkers(t *testing.T) {
	g := newGate()
	s, addr := start(t, over(samplePolicy(t), g), Options{SideBySide: true})
	const n = maxIdle/2 + 10
	clients := []*client{dial(t, addr), dial(t, addr), dial(t, addr)}
	for range 3 {
		for _, c := range clients {
			c.write(strings.Repeat(wire("HG.PEEK", "mail", "a"), n))
		}
		for range n * len(clients) {
			<-g.came
		}
		for range n * len(clients) {
			g.let <- struct{}{}
		}
		for _, c := range clients {
			for range n {
				if got := c.answer(); !strings.HasPrefix(got, "[allowed 1 ") {
					t.Fatalf("answered %s", got)
				}
			}
		}
		eventually(t, "as many are kept as may be", func() bool { return s.idle.Load() == maxIdle })
	}
}

// Commands that are being decided when the server ends are answered, and so are
// those that follow at once.
func TestShutdown(t *testing.T) {
	g := newGate()
	s, addr := start(t, over(samplePolicy(t), g), Options{})
	idle, busy := dial(t, addr), dial(t, addr)
	if got := idle.do("PING"); got != "+PONG" {
		t.Fatal(got)
	}
	busy.write(wire("HG.CHECK", "mail", "a"))
	<-g.came
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(context.Background()) }()
	if !idle.ended() {
		t.Error("an idle connection goes on")
	}
	close(g.let)
	if got := busy.answer(); !strings.HasPrefix(got, "[allowed 1 ") || !busy.ended() {
		t.Errorf("the command in flight is answered with %s", got)
	}
	idle.Close()
	busy.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := s.Serve(listen(t)); err != nil {
		t.Errorf("to serve again: %v", err)
	}
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("the address is still served")
	}
}

// halves is a connection that can close its sending side, like one of TCP. Its client does not
// notice, like one that keeps the connection in a pool.
type halves struct{ net.Conn }

func (halves) CloseWrite() error { return nil }

// A client has half a second to read its last answer. A connection that was idle for longer does not
// hold up the shutdown.
func TestShutdownOfIdleConnections(t *testing.T) {
	for idle, want := range map[time.Duration]time.Duration{
		0:                      500 * time.Millisecond,
		200 * time.Millisecond: 300 * time.Millisecond,
		time.Second:            defaultTimes.last,
	} {
		bubbletest.Test(t, func(t *testing.T) {
			p := &pipes{make(chan net.Conn), make(chan struct{})}
			s := New(over(samplePolicy(t), memory.New()), Options{})
			served := make(chan error, 1)
			go func() { served <- s.Serve(p) }()
			near, far := net.Pipe()
			defer near.Close()
			p.conns <- halves{far}
			c := &client{t, near, bufio.NewReader(near)}
			if got := c.do("PING"); got != "+PONG" {
				t.Fatal(got)
			}
			time.Sleep(idle)
			began := time.Now()
			if err := s.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took != want {
				t.Errorf("idle for %v, the connection is closed after %v, want %v", idle, took, want)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A shutdown that takes too long cuts off what is left.
func TestShutdownCutsOff(t *testing.T) {
	g := newGate()
	s, addr := start(t, over(samplePolicy(t), g), Options{})
	c := dial(t, addr)
	c.write(wire("HG.CHECK", "mail", "a"))
	<-g.came
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	if s.Connections() != 0 {
		t.Errorf("%d connections are left", s.Connections())
	}
}

// panics is a store with a defect.
type panics struct{}

func (panics) Take(context.Context, headgate.Op, []headgate.Check, []headgate.Decision) ([]headgate.Decision, error) {
	panic("a defect")
}

func TestPanic(t *testing.T) {
	for _, sideBySide := range []bool{false, true} {
		log := new(locked)
		_, addr := start(t, over(samplePolicy(t), panics{}), Options{SideBySide: sideBySide, Logger: slog.New(slog.NewTextHandler(log, nil))})
		c := dial(t, addr)
		c.write(strings.Repeat(wire("HG.CHECK", "mail", "a"), 3))
		if got := c.answer(); got != "-ERR "+defect {
			t.Errorf("a defect is answered with %s", got)
		}
		if got := log.text(); !strings.Contains(got, "a command caused a panic") || !strings.Contains(got, "panic=\"a defect\"") {
			t.Errorf("the log says\n%s", got)
		}
		if got := dial(t, addr).do("PING"); got != "+PONG" {
			t.Errorf("another connection is answered with %s", got)
		}
	}
}

func TestTLS(t *testing.T) {
	certificates := httptest.NewTLSServer(nil)
	defer certificates.Close()
	s := New(over(samplePolicy(t), memory.New()), Options{times: times{handshake: 30 * time.Second, idle: time.Hour, read: 30 * time.Second, write: 30 * time.Second}})
	l := listen(t)
	served := make(chan error, 1)
	go func() {
		served <- s.Serve(tls.NewListener(l, &tls.Config{Certificates: certificates.TLS.Certificates}))
	}()
	trusting := certificates.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	trusting.ServerName = "example.com"
	nc, err := tls.Dial("tcp", l.Addr().String(), trusting)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c := &client{t, nc, bufio.NewReader(nc)}
	c.exchanges([]exchange{
		{"PING", "+PONG"},
		{"HG.CHECK mail a", "[allowed 1 …"},
		{"CLUSTER SLOTS", "[[0 16383 [example.com …"}, // The certificate is for that name.
		{"CLUSTER SHARDS", "[[slots [0 16383] nodes [[tls-port …"},
	})
	plain := dial(t, l.Addr().String())
	plain.write(wire("PING"))
	if text, err := plain.r.ReadString('\n'); err == nil && strings.Contains(text, "PONG") {
		t.Errorf("without TLS, the server answers %q", text)
	}
	nc.Close()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
