package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/test/servers"
)

const permitPolicy = `
rules:
  - name: report
    match: { tenant: present }
    per: [tenant]
    in_progress: { limit: 1, shared: true, ttl: 6s }
  - name: patient
    match: { tenant: present }
    per: [tenant]
    in_progress: { limit: 1, shared: true, ttl: 6s, wait: 2m }
`

// permits are those of one rule and key, as the command line reaches them.
type permits struct {
	flags []string
	dir   string
	grace string
}

func permitsOf(t *testing.T, store *servers.Server, rule string) *permits {
	t.Helper()
	return &permits{
		[]string{"--store", patiently(store.URL()), "--config", policyFile(t, permitPolicy), "--rule", rule, "--key", "tenant7"},
		t.TempDir(), "2m",
	}
}

// words are those of a command about the permits.
func (p *permits) words(command string, more ...string) []string {
	return append(append([]string{"permit", command}, p.flags...), more...)
}

// run are the words that run a shell under a permit.
func (p *permits) run(script string, args ...string) []string {
	return append(p.words("run", "--grace", p.grace, "--", "sh", "-c", script), args...)
}

// listed is what permit holders prints.
type listed struct {
	Limit   int `json:"limit"`
	InUse   int `json:"in_use"`
	Permits []struct {
		Holder    string `json:"holder"`
		ExpiresMS int64  `json:"expires_in_ms"`
	} `json:"permits"`
	Waiting []struct {
		Holder string `json:"holder"`
	} `json:"waiting"`
}

func (p *permits) holders(t *testing.T) (l listed) {
	t.Helper()
	r := runProgram(t, p.words("holders", "--json", "--timeout", "1m")...)
	if err := json.Unmarshal([]byte(r.stdout), &l); err != nil || r.code != 0 {
		t.Fatalf("holders: exit code %d, %v: %s%s", r.code, err, r.stdout, r.stderr)
	}
	return l
}

// revoke revokes the only permit that is held.
func (p *permits) revoke(t *testing.T) {
	t.Helper()
	l := p.holders(t)
	if len(l.Permits) != 1 {
		t.Fatalf("holders are %+v", l)
	}
	if r := runProgram(t, p.words("revoke", "--timeout", "1m", l.Permits[0].Holder)...); r.code != 0 || r.stdout != "revoked\n" {
		t.Errorf("revoke: exit code %d, said %q and %q", r.code, r.stdout, r.stderr)
	}
}

// TestDamagedPermits: permits that the store cannot read are told apart from a store that is away,
// and come back when the key is deleted that docs/failures.md names.
func TestDamagedPermits(t *testing.T) {
	t.Parallel()
	store := servers.Start(t, servers.Redis)
	p := permitsOf(t, store, "report")
	const key = "hg: permit report tenant7"
	if _, err := store.Do(t.Context(), "SET", key, "x"); err != nil {
		t.Fatal(err)
	}
	for _, words := range [][]string{p.words("holders", "--timeout", "1m"), p.words("revoke", "--timeout", "1m", "somebody")} {
		if r := runProgram(t, words...); r.code != 3 || !strings.Contains(r.stderr, "is damaged, so that none is given") || !strings.Contains(r.stderr, "docs/failures.md") {
			t.Errorf("%s: exit code %d, %s", words[1], r.code, r.stderr)
		}
	}
	if n, err := store.Do(t.Context(), "DEL", key); err != nil || fmt.Sprint(n) != "1" {
		t.Fatal(n, err)
	}
	if l := p.holders(t); l.InUse != 0 || l.Limit != 1 {
		t.Errorf("after the key was deleted: %+v", l)
	}
}

// work is a command that runs under a permit.
type work struct {
	cmd            *exec.Cmd
	stdout, stderr strings.Builder
}

// begin starts a shell that goes on until it is told to end, and waits until it is at
// work. The script says what it does when it is told so.
func (p *permits) begin(t *testing.T, told string) *work {
	t.Helper()
	begun := filepath.Join(p.dir, "begun")
	w := &work{cmd: program(t, p.run("trap '"+told+`' TERM; touch "$0"; while :; do sleep 0.05; done`, begun)...)}
	w.cmd.Stdout, w.cmd.Stderr = &w.stdout, &w.stderr
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "the command works", func() bool { return os.Remove(begun) == nil })
	return w
}

func (w *work) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// end waits until the command has ended.
func (w *work) end(t *testing.T) result {
	t.Helper()
	return result{exitCode(t, w.cmd.Wait()), w.stdout.String(), w.stderr.String()}
}

// A command runs while it has a permit. Its exit code is kept, signals are passed on, and a
// second command is refused meanwhile.
func TestPermitRun(t *testing.T) {
	t.Parallel()
	p := permitsOf(t, servers.Start(t, servers.Redis), "report")
	r := runProgram(t, p.run(`echo "fence $HEADGATE_PERMIT_EPOCH $HEADGATE_PERMIT_SLOTS"; exit 7`)...)
	if words := strings.Fields(r.stdout); r.code != 7 || len(words) != 3 || len(words[1]) < 16 || words[2] != "0" {
		t.Errorf("exit code %d, said %q and %q", r.code, r.stdout, r.stderr)
	}
	if r := runProgram(t, p.run("kill -KILL $$")...); r.code != 128+9 {
		t.Errorf("after SIGKILL: exit code %d, said %q", r.code, r.stderr)
	}
	if r := runProgram(t, p.words("run", "--", "/none/such")...); r.code != 127 {
		t.Errorf("a command that is not there: exit code %d, said %q", r.code, r.stderr)
	}
	if l := p.holders(t); l.InUse != 0 || l.Limit != 1 {
		t.Errorf("after the commands: %+v", l)
	}

	w := p.begin(t, "echo ending; exit 5")
	second := runProgram(t, p.run("echo ran")...)
	if l := p.holders(t); len(l.Permits) != 1 || second.code != 1 || second.stdout != "" || !strings.Contains(second.stderr, l.Permits[0].Holder) {
		t.Errorf("a second command: exit code %d, said %q and %q; holders are %+v", second.code, second.stdout, second.stderr, l)
	}
	w.signal(t, syscall.SIGTERM)
	if r := w.end(t); r.code != 5 || r.stdout != "ending\n" {
		t.Errorf("after SIGTERM: exit code %d, said %q and %q", r.code, r.stdout, r.stderr)
	}
	if l := p.holders(t); l.InUse != 0 {
		t.Errorf("after the commands: %+v", l)
	}
	if r := runProgram(t, p.words("revoke", "--timeout", "1m", "nobody")...); r.code != 1 {
		t.Errorf("revoking what nobody holds: exit code %d, said %q", r.code, r.stderr)
	}
}

// A command whose permit is revoked is told to end, and killed if it does not.
func TestPermitIsLost(t *testing.T) {
	t.Parallel()
	p := permitsOf(t, servers.Start(t, servers.Redis), "report")
	for _, tt := range []struct{ name, told, grace, says string }{
		{"heeds SIGTERM", "echo ending; exit 5", "2m", "ending\n"},
		{"needs SIGKILL", "", "200ms", ""},
	} {
		p.grace = tt.grace
		w := p.begin(t, tt.told)
		p.revoke(t)
		if r := w.end(t); r.code != 1 || r.stdout != tt.says || !strings.Contains(r.stderr, "permit is lost") {
			t.Errorf("%s: exit code %d, said %q and %q", tt.name, r.code, r.stdout, r.stderr)
		}
		if l := p.holders(t); l.InUse != 0 {
			t.Errorf("%s: after the command: %+v", tt.name, l)
		}
	}
}

// A second command waits if the rule says so. It gets the permit of one that was killed,
// whose lease has by then ended by itself, and whose command has ended with it.
func TestPermitOfKilledIsFreed(t *testing.T) {
	t.Parallel()
	p := permitsOf(t, servers.Start(t, servers.Redis), "patient")
	ended := filepath.Join(p.dir, "ended")
	first := p.begin(t, `touch "`+ended+`"; exit 0`)
	second := make(chan result, 1)
	go func() { second <- runProgram(t, p.run("echo ran")...) }()
	until(t, "the second waits", func() bool { return len(p.holders(t).Waiting) == 1 })
	if l := p.holders(t); len(l.Permits) != 1 || l.Permits[0].ExpiresMS > (7*time.Second).Milliseconds() {
		t.Errorf("holders are %+v, want one whose lease ends within its TTL and a second", l)
	}
	first.signal(t, syscall.SIGKILL)
	if r := first.end(t); r.code != -1 {
		t.Errorf("after SIGKILL: exit code %d", r.code)
	}
	until(t, "the command of the killed one ends", func() bool { _, err := os.Stat(ended); return err == nil })
	select {
	case r := <-second:
		if r.code != 0 || r.stdout != "ran\n" {
			t.Errorf("the second: exit code %d, said %q and %q", r.code, r.stdout, r.stderr)
		}
	case <-time.After(within):
		t.Error("the permit of a killed holder does not get free")
	}
}
