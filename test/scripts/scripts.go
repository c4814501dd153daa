// Package scripts starts scripts of the examples, as their readers would, and ends
// them with all that they have started.
package scripts

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// within is how long a script may take to end, once it is told to.
const within = time.Minute

// Script is a script that runs, or has run.
type Script struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended, and nobody has its output open

	mu  sync.Mutex // guards log
	log strings.Builder
}

// Start starts a script with its words, what the environment says to it, and none of
// the shell's settings of Headgate. When the test ends, the script is told to end;
// what does not end with it fails the test, and is killed.
func Start(t testing.TB, path string, environment []string, words ...string) *Script {
	t.Helper()
	s := &Script{cmd: exec.Command(path, words...), ended: make(chan struct{})}
	for _, setting := range os.Environ() {
		if !strings.HasPrefix(setting, "HEADGATE") {
			s.cmd.Env = append(s.cmd.Env, setting)
		}
	}
	s.cmd.Env = append(s.cmd.Env, environment...)
	s.cmd.Stdout, s.cmd.Stderr = s, s
	// What has the output open longer than this has outlived the script.
	s.cmd.WaitDelay = within
	// All that it starts is in a group of its own.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var outcome error
	go func() {
		defer close(s.ended)
		outcome = s.cmd.Wait()
	}()
	t.Cleanup(func() {
		alone := s.Ended()
		// It may have ended by itself.
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(within, s.kill)
		<-s.ended
		switch {
		case !kill.Stop() || errors.Is(outcome, exec.ErrWaitDelay):
			s.kill()
			t.Errorf("%s: what it has started does not end with it", path)
		case !alone && outcome != nil:
			t.Errorf("%s: told to end, it says %v", path, outcome)
		}
		if t.Failed() {
			t.Logf("%s says:\n%s", path, s.Log())
		}
	})
	return s
}

func (s *Script) kill() { _ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) }

// Write implements [io.Writer] for what the script says.
func (s *Script) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

// Log is what the script, and all that it has started, have said so far.
func (s *Script) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// Ended tells whether the script has ended.
func (s *Script) Ended() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// Await waits until the log has a match of the expression, and returns the match
// and its groups; nil if the script has ended without one, or does not say so
// within two minutes.
func (s *Script) Await(expression string) []string {
	wanted := regexp.MustCompile(expression)
	for deadline := time.Now().Add(2 * within); ; time.Sleep(5 * time.Millisecond) {
		over := s.Ended() || time.Now().After(deadline)
		if match := wanted.FindStringSubmatch(s.Log()); match != nil || over {
			return match
		}
	}
}

// Serving starts a script with start until one serves, which ready tells: ports that
// are free when they are chosen may be taken by the time they are used. A script
// that has ended is not ready.
func Serving(t testing.TB, start func() *Script, ready func(*Script) bool) *Script {
	t.Helper()
	const tries = 5
	var s *Script
	for range tries {
		if s = start(); ready(s) {
			return s
		}
		t.Logf("%s does not serve:\n%s", s.cmd.Path, s.Log())
	}
	t.Fatalf("it does not in %d tries", tries)
	return nil
}

// Answers is for [Serving]: whether the URLs answer with 200, one after the other,
// before the script ends, and each within two minutes.
func (s *Script) Answers(urls ...string) bool {
	client := &http.Client{Transport: new(http.Transport), Timeout: within}
	defer client.CloseIdleConnections()
	for _, url := range urls {
		for deadline := time.Now().Add(2 * within); ; time.Sleep(20 * time.Millisecond) {
			response, err := client.Get(url)
			if err == nil {
				_ = response.Body.Close()
				if response.StatusCode == http.StatusOK {
					break
				}
			}
			if s.Ended() || time.Now().After(deadline) {
				return false
			}
		}
	}
	return !s.Ended()
}
