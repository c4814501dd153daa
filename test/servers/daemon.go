package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// startTime is how long a server may take until it answers. Most take some 20 ms, Kafka and
	// RabbitMQ some seconds; the rest is for a machine that is busy with other tests.
	startTime = 5 * time.Minute
	// stopTime is how long a server may take to end on SIGTERM before it is killed.
	stopTime = 10 * time.Second
	// pollTime is the pause between two attempts.
	pollTime = 5 * time.Millisecond
)

// Patience is how long a test waits for one answer: longer than a busy machine takes. Whoever
// waits for longer waits in vain, as for a broker whose disk is full.
const Patience = 3 * time.Minute

// Bounded returns a context for one call of a client that has no deadline of its own. It ends
// with the test, and after [Patience].
func Bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// find returns the path of a program of a Debian package.
func find(program, pkg string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("servers: %s is not installed (%w): run `make test`, which installs it, or `apt-get install %s`",
			filepath.Base(program), err, pkg)
	}
	return path, nil
}

// Daemon is one running server of any kind. Its methods are safe for concurrent use, but those that
// fail the test must be called from the test's own goroutine, as t.Fatal must.
type Daemon struct {
	t    testing.TB
	name string
	dir  string
	port int
	// command makes a process that is not started yet, and ready asks it whether it
	// serves.
	command func() *exec.Cmd
	ready   func(ctx context.Context) error

	mu      sync.Mutex // guards what follows
	process *process   // nil while the server is down
	paused  bool
}

// process is one life of a server.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once the process has ended
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.done
}

// startDaemon starts a server on a free port, and another one if that was taken
// meanwhile.
func startDaemon(d *Daemon) {
	d.t.Helper()
	d.t.Cleanup(d.cleanup)
	const tries = 5
	var err error
	for range tries {
		d.port = Port(d.t)
		if err = d.start(); err == nil {
			return
		}
		if !portTaken(d.logTail(), d.port) {
			break
		}
	}
	d.t.Fatal(err)
}

func (d *Daemon) start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	log, err := os.OpenFile(d.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("servers: %w", err)
	}
	defer log.Close()
	p := &process{cmd: d.command(), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("servers: %w", err)
	}
	go func() {
		defer close(p.done)
		// How it ended does not matter: tests end it by force, and await notices if it ends by itself.
		_ = p.cmd.Wait()
	}()
	if err := d.await(p); err != nil {
		p.kill()
		return fmt.Errorf("servers: %s on port %d: %w; its log ends with:\n%s", d.name, d.port, err, d.logTail())
	}
	d.process = p
	return nil
}

func (d *Daemon) await(p *process) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	for {
		err := d.ready(ctx)
		select {
		case <-p.done:
			return fmt.Errorf("it ended (%v) before it answered", p.cmd.ProcessState)
		default:
		}
		if err == nil {
			return nil
		}
		select {
		case <-time.After(pollTime):
		case <-ctx.Done():
			return fmt.Errorf("no answer within %v: %w", startTime, err)
		}
	}
}

// Addr is the server's address, such as "127.0.0.1:20001". It stays the same over a
// Restart.
func (d *Daemon) Addr() string { return net.JoinHostPort(loopback, strconv.Itoa(d.port)) }

// Kill ends the server and its processes at once, as a crash would. It does nothing to
// a server that is down.
func (d *Daemon) Kill() {
	p := d.take()
	if p == nil {
		return
	}
	_ = Halt(p.cmd.Process.Pid) // so that it starts no others in place of these; it is killed anyway
	left := children(p.cmd.Process.Pid)
	for _, pid := range left {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
	}
	p.kill()
	// They are not gone at once, and a new server refuses to start beside them.
	for until := time.Now().Add(startTime); slices.ContainsFunc(left, runs) && time.Now().Before(until); {
		time.Sleep(pollTime)
	}
}

// Stop ends the server as an operator would: with SIGTERM, on which it closes its connections and
// saves what it was told to. It does nothing to a server that is down.
func (d *Daemon) Stop() {
	p := d.take()
	if p == nil {
		return
	}
	// A paused process would not see the signal.
	for _, sig := range []syscall.Signal{syscall.SIGCONT, syscall.SIGTERM} {
		_ = p.cmd.Process.Signal(sig) // it may have ended by itself
	}
	select {
	case <-p.done:
	case <-time.After(stopTime):
		p.kill()
	}
}

// take returns the running process, if there is one, and marks the server as down.
func (d *Daemon) take() *process {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.process
	d.process, d.paused = nil, false
	return p
}

// up reports whether the server runs, and answers whether it also is not paused. crashed reports
// whether it has ended although nobody ended it.
func (d *Daemon) up() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.process != nil
}

func (d *Daemon) answers() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.process != nil && !d.paused
}

func (d *Daemon) crashed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.process == nil {
		return false
	}
	select {
	case <-d.process.done:
		return true
	default:
		return false
	}
}

// Restart starts the server again, on the same port, after Kill. It fails the test if
// the server does not come up.
func (d *Daemon) Restart() {
	d.t.Helper()
	d.Kill()
	if err := d.start(); err != nil {
		d.t.Fatal(err)
	}
}

// Pause freezes the server and all of its processes: its port still accepts
// connections, and nothing answers. A server that is down fails the test.
func (d *Daemon) Pause() {
	d.t.Helper()
	d.mustSignal(syscall.SIGSTOP)
}

// Resume lets a paused server go on. A server that is down fails the test.
func (d *Daemon) Resume() {
	d.t.Helper()
	d.mustSignal(syscall.SIGCONT)
}

// SetClock sets the wall clock of the server and of all its processes so many whole seconds
// ahead of the machine's, or back if they are negative; 0 is right again. Processes that it
// starts later have that clock too; a server that is started again has one that is right. A
// server that is down fails the test.
func (d *Daemon) SetClock(ahead time.Duration) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.process == nil {
		d.t.Fatalf("servers: %s on port %d is down and has no clock", d.name, d.port)
	}
	if err := SetClock(d.process.cmd.Process.Pid, ahead); err != nil {
		d.t.Fatal(err)
	}
}

func (d *Daemon) mustSignal(sig syscall.Signal) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.process == nil {
		d.t.Fatalf("servers: %s on port %d is down and cannot get %v", d.name, d.port, sig)
	}
	pid := d.process.cmd.Process.Pid
	err := send(pid, sig) // first: a server that is stopped starts no others
	all := children(pid)
	for _, child := range all { // at once, since each may take its time to stop
		_ = syscall.Kill(child, sig)
	}
	for _, child := range all {
		err = errors.Join(err, send(child, sig))
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.paused = sig == syscall.SIGSTOP
}

// greet connects to the server, sends what a client says first, and returns so many bytes of the
// answer.
func (d *Daemon) greet(ctx context.Context, hello string, n int) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", d.Addr())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := io.WriteString(conn, hello); err != nil {
		return "", err
	}
	answer := make([]byte, n)
	_, err = io.ReadFull(conn, answer)
	return string(answer), err
}

func (d *Daemon) cleanup() {
	d.Kill()
	if d.t.Failed() {
		d.t.Logf("the log of %s on port %d ends with:\n%s", d.name, d.port, d.logTail())
	}
}

func (d *Daemon) logPath() string { return filepath.Join(d.dir, "server.log") }

func (d *Daemon) logTail() string {
	const bytes = 2048 // a Cluster has six servers, and what failed should be seen beside them
	log, err := os.ReadFile(d.logPath())
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-bytes):])
}

// children are the processes that a process has started, as far as the system's
// /proc tells.
func children(pid int) []int {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var found []int
	for _, process := range processes {
		child, err := strconv.Atoi(filepath.Base(process))
		if err != nil {
			continue
		}
		if _, parent := stat(process); parent == strconv.Itoa(pid) {
			found = append(found, child)
		}
	}
	return found
}

// send sends a signal. A process that has ended meanwhile is what its sender wants or will find out.
func send(pid int, sig syscall.Signal) error {
	if sig == syscall.SIGSTOP {
		return Halt(pid)
	}
	_ = syscall.Kill(pid, sig) // it may have ended by itself
	return nil
}

// Halt stops a process (SIGSTOP) and waits until none of its threads runs. On a busy machine a
// process goes on for a while after the signal was sent, and answers. A process that has ended is no
// error.
func Halt(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && runs(pid) {
		return fmt.Errorf("servers: stopping process %d: %w", pid, err)
	}
	going := func(thread string) bool {
		state, _ := stat(thread)
		return state != "T" && state != "Z" && state != ""
	}
	for until := time.Now().Add(startTime); time.Now().Before(until); time.Sleep(time.Millisecond) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(threads, going) {
			return nil
		}
	}
	return fmt.Errorf("servers: process %d does not stop within %v", pid, startTime)
}

// runs reports whether a process has not ended, as far as the system's /proc tells.
func runs(pid int) bool {
	state, _ := stat(fmt.Sprintf("/proc/%d", pid))
	return state != "" && state != "Z" && state != "X" // what nobody has waited for is there as Z
}

// stat is the state of a process, or of a thread, and its parent, as its directory in /proc says,
// or "" if there is none. A pattern for [filepath.Glob] with the file's name in it would have each
// of these directories read.
func stat(dir string) (state, parent string) {
	text, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return "", ""
	}
	// The name in parentheses may hold anything; the state and the parent follow it.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 2 {
		return "", ""
	}
	return fields[0], fields[1]
}
