package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a running server that nobody else uses.
type Process struct {
	// Addr is the host and port that it listens on.
	Addr string

	cmd *exec.Cmd
	log bytes.Buffer
	dir string         // its working directory, which is removed when it has ended
	end syscall.Signal // what it is asked to end by
}

// within is how long a server may take to start, and to end. One in Python may load for half a minute.
const within = 2 * time.Minute

// Start runs a command. Its argument "ADDR" stands for the address to listen on, and "PORT" for
// the port of that alone. It returns when the server accepts connections. If the program is
// missing, the error is [exec.ErrNotFound].
func Start(ctx context.Context, command []string) (*Process, error) {
	return launch(ctx, command, "", nil, accepts)
}

// launch is Start in a directory, or in a new one if that is empty, and with another way to see
// whether the server is ready.
func launch(ctx context.Context, command []string, dir string, as *syscall.SysProcAttr, ready func(ctx context.Context, addr string) error) (*Process, error) {
	p := &Process{dir: dir, end: syscall.SIGTERM}
	fail := func(err error) (*Process, error) {
		return nil, fmt.Errorf("servers: starting %s: %w", command[0], errors.Join(err, p.Stop()))
	}
	var err error
	if p.Addr, err = FreeAddr(ctx); err != nil {
		return fail(err)
	}
	if p.dir == "" {
		if p.dir, err = os.MkdirTemp("", "headgate-bench-"); err != nil {
			return fail(err)
		}
	}
	_, port, _ := net.SplitHostPort(p.Addr) // net has joined it
	args := make([]string, 0, len(command))
	for _, arg := range command[1:] {
		switch arg {
		case "ADDR":
			arg = p.Addr
		case "PORT":
			arg = port
		}
		args = append(args, arg)
	}
	cmd := exec.Command(command[0], args...)
	cmd.Dir, cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = p.dir, as, &p.log, &p.log
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	p.cmd = cmd
	if err := p.await(ctx, ready); err != nil {
		return fail(err)
	}
	return p, nil
}

// await waits until the server is ready.
func (p *Process) await(ctx context.Context, ready func(ctx context.Context, addr string) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := ready(ctx, p.Addr)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no answer on %s within %v: %w", p.Addr, within, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// accepts reports whether a server accepts connections.
func accepts(ctx context.Context, addr string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return c.Close()
}

// Restart kills the server, and starts it after a while again, at the same address and in the same
// directory. It returns when the server accepts connections.
func (p *Process) Restart(ctx context.Context, down time.Duration) error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	_ = p.cmd.Wait() // It was killed.
	select {
	case <-ctx.Done():
	case <-time.After(down):
	}
	again := exec.Command(p.cmd.Path, p.cmd.Args[1:]...)
	again.Dir, again.SysProcAttr, again.Stdout, again.Stderr = p.cmd.Dir, p.cmd.SysProcAttr, &p.log, &p.log
	if err := again.Start(); err != nil {
		return fmt.Errorf("servers: starting %s again: %w", p.cmd.Path, err)
	}
	p.cmd = again
	return p.await(ctx, accepts)
}

// Stop ends the server. If it did not end well, the error holds its log.
func (p *Process) Stop() error {
	var err error
	if p.cmd != nil {
		err = p.signal(p.end)
		kill := time.AfterFunc(within, func() { _ = p.cmd.Process.Kill() }) // Wait reports how it ended
		if err = errors.Join(err, p.cmd.Wait()); err != nil {
			err = fmt.Errorf("servers: stopping %s: %w; its log: %s", p.cmd.Path, err, &p.log)
		}
		kill.Stop()
	}
	if p.dir == "" {
		return err
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

// Pause freezes the server: its port still accepts connections, and nothing answers.
func (p *Process) Pause() error { return p.signal(syscall.SIGSTOP) }

// Resume lets a paused server go on. A server that is paused cannot be stopped.
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("servers: signal %v: %w", s, err)
	}
	return nil
}

// CPU is the CPU time that the server has used so far.
func (p *Process) CPU() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("servers: %w", err)
	}
	return parseStat(string(text))
}

// Memory is how many bytes of the server's memory are resident.
func (p *Process) Memory() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("servers: %w", err)
	}
	pages, err := parseStatm(string(text))
	return pages * int64(os.Getpagesize()), err
}

// parseStatm reads the number of resident pages out of /proc/PID/statm, where it is the second.
func parseStatm(text string) (int64, error) {
	fields := strings.Fields(text)
	if len(fields) < 2 {
		return 0, fmt.Errorf("servers: /proc/PID/statm is %q, with too few fields", text)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("servers: /proc/PID/statm is %q: %w", text, err)
	}
	return pages, nil
}

// ticks is how many of the kernel's units make a second: USER_HZ, which is 100 on
// every architecture that Go runs on.
const ticks = 100

// parseStat reads the times in user and system mode out of /proc/PID/stat. The
// second field, the program's name in parentheses, may hold anything.
func parseStat(text string) (time.Duration, error) {
	_, rest, ok := strings.Cut(text[strings.LastIndexByte(text, ')')+1:], " ")
	fields := strings.Fields(rest)
	const user, system = 11, 12 // fields 14 and 15 of proc(5), counted from the third
	if !ok || len(fields) <= system {
		return 0, fmt.Errorf("servers: /proc/PID/stat is %q, with too few fields", text)
	}
	sum := int64(0)
	for _, i := range []int{user, system} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("servers: /proc/PID/stat is %q: %w", text, err)
		}
		sum += n
	}
	return time.Duration(sum) * (time.Second / ticks), nil
}

// FreeAddr asks the system for a loopback port that nobody uses.
func FreeAddr(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// The program of envoyproxy/ratelimit. It is built as its own go.mod says.
const (
	rateLimit        = "github.com/envoyproxy/ratelimit/src/service_cmd"
	RateLimitVersion = "v1.4.1-0.20260122083618-3fb702589d36"
)

// RateLimit builds envoyproxy/ratelimit into dir, with a configuration for it there, and returns the
// command that serves with the counters in the Redis at an address.
func RateLimit(ctx context.Context, dir, config string) (func(redis string) []string, error) {
	build := exec.CommandContext(ctx, "go", "install", rateLimit+"@"+RateLimitVersion)
	build.Env = append(os.Environ(), "GOBIN="+dir, "GOWORK=off")
	if text, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("servers: %s: %w: %s", build, err, text)
	}
	place := filepath.Join(dir, "ratelimit", "config")
	if err := errors.Join(os.MkdirAll(place, 0o700), os.WriteFile(filepath.Join(place, "bench.yaml"), []byte(config), 0o600)); err != nil {
		return nil, fmt.Errorf("servers: %w", err)
	}
	// It is told by the environment, and asks for a port without a host.
	const told = "GRPC_HOST=127.0.0.1 GRPC_PORT=${0##*:} HOST=127.0.0.1 PORT=0 DEBUG_HOST=127.0.0.1 DEBUG_PORT=0 LOG_LEVEL=warn DISABLE_STATS=true USE_STATSD=false " +
		"REDIS_SOCKET_TYPE=tcp REDIS_URL=%s RUNTIME_ROOT=%s RUNTIME_SUBDIRECTORY=ratelimit RUNTIME_APPDIRECTORY=config RUNTIME_WATCH_ROOT=false exec %s"
	return func(redis string) []string {
		return []string{"/bin/sh", "-c", fmt.Sprintf(told, redis, dir, filepath.Join(dir, filepath.Base(rateLimit))), "ADDR"}
	}, nil
}

// Build builds Headgate's server from the module at source into dir, and returns the name of the
// program.
func Build(ctx context.Context, source, dir string) (string, error) {
	binary := filepath.Join(dir, "headgate")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/headgate")
	build.Dir = source
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("servers: building the server in %s: %w: %s", source, err, text)
	}
	return binary, nil
}
