package servicebench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a server under measurement.
type process struct {
	addr string
	cmd  *exec.Cmd
	log  bytes.Buffer
}

// within is how long a server may take to start, and to end.
const within = 10 * time.Second

// start runs the command, whose arguments name the address in place of
// "ADDR", and returns when the server accepts connections.
func start(ctx context.Context, command []string) (_ *process, err error) {
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	args := make([]string, len(command))
	for i, a := range command {
		args[i] = strings.ReplaceAll(a, "ADDR", addr)
	}
	p := &process{addr: addr, cmd: exec.Command(args[0], args[1:]...)}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("servicebench: %w", err)
	}
	for deadline := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			return p, c.Close()
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			err = fmt.Errorf("servicebench: %s did not listen on %s within %v: %w", args[0], addr, within, err)
			return nil, errors.Join(err, p.stop())
		}
	}
}

// stop ends the server. The error, if it did not end well, holds its log.
func (p *process) stop() error {
	err := p.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(within, func() { _ = p.cmd.Process.Kill() }) // Wait reports how it ended.
	defer kill.Stop()
	if err = errors.Join(err, p.cmd.Wait()); err != nil {
		return fmt.Errorf("servicebench: stopping %s: %w; its log: %s", p.cmd.Path, err, &p.log)
	}
	return nil
}

// cpu is the CPU time that the server has used so far.
func (p *process) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("servicebench: %w", err)
	}
	return parseStat(string(text))
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
		return 0, fmt.Errorf("servicebench: /proc/PID/stat is %q, with too few fields", text)
	}
	sum := int64(0)
	for _, i := range []int{user, system} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("servicebench: /proc/PID/stat is %q: %w", text, err)
		}
		sum += n
	}
	return time.Duration(sum) * (time.Second / ticks), nil
}

// freeAddr asks the system for a loopback port that nobody uses.
func freeAddr(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("servicebench: looking for a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}
