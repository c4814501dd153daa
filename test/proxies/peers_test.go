package proxies

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The programs under test, which TestMain and [caddy] build.
var built, headgate string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if built, err = os.MkdirTemp("", "headgate-proxies"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(built)
	headgate = filepath.Join(built, "headgate")
	if err := build(headgate, "../../server", "./cmd/headgate"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func build(to, dir, pkg string, env ...string) error {
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", to, pkg)
	cmd.Dir, cmd.Env = filepath.FromSlash(dir), append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s in %s: %w\n%s", pkg, dir, err, out)
	}
	return nil
}

// caddy builds Caddy, once.
var caddy = sync.OnceValues(func() (string, error) {
	to := filepath.Join(built, "caddy")
	return to, build(to, "testdata/caddy", ".", "GOWORK=off")
})

// peer is a proxy that examples/forward-auth has started, with the Headgate that it
// asks.
type peer struct {
	name string
	url  string // of the proxy
	cmd  *exec.Cmd
	read chan struct{} // closed when the log has ended

	mu  sync.Mutex // guards log
	log strings.Builder
}

// names are the proxies.
var names = []string{"nginx", "haproxy", "caddy", "traefik"}

// start starts a proxy, and a Headgate with the policy and more options if it gets
// them. Without a policy nobody is there to be asked.
func start(t *testing.T, name, policy string, options ...string) *peer {
	t.Helper()
	var env []string
	if name == "caddy" {
		program, err := caddy()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, "CADDY="+program)
	}
	if policy == "" {
		env = append(env, "PROGRAM=none")
	} else {
		env = append(env, "PROGRAM="+headgate, "LIMITS="+policy)
	}
	// Ports that are free may be taken by the time they are used.
	const tries = 5
	var p *peer
	for range tries {
		if p = try(t, name, env, options); p.url != "" {
			return p
		}
	}
	t.Fatalf("%s does not start:\n%s", name, p.logged())
	return nil
}

func try(t *testing.T, name string, env, options []string) *peer {
	t.Helper()
	proxy := address(t)
	p := &peer{name: name, read: make(chan struct{})}
	p.cmd = exec.CommandContext(t.Context(), "../../examples/forward-auth/run", append([]string{name}, options...)...)
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 20 * time.Second
	for _, setting := range os.Environ() {
		if !strings.HasPrefix(setting, "HEADGATE") {
			p.cmd.Env = append(p.cmd.Env, setting)
		}
	}
	p.cmd.Env = append(append(p.cmd.Env, env...), "PROXY="+proxy, "APP="+address(t), "HEADGATE="+address(t))
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = p.cmd.Stdout
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	go func() {
		defer close(p.read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.mu.Lock()
			p.log.WriteString(lines.Text() + "\n")
			p.mu.Unlock()
			if strings.HasPrefix(lines.Text(), name+" is ready") {
				close(ready)
			}
		}
	}()
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("%s said:\n%s", name, p.logged())
		}
	})
	select {
	case <-ready:
		p.url = "http://" + proxy
	case <-p.read:
	}
	return p
}

// stop ends the proxy and its Headgate, if they have not ended yet.
func (p *peer) stop() {
	// It may have ended by itself.
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.read
	_ = p.cmd.Wait()
}

func (p *peer) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// address is one of the loopback interface on which nothing listens.
func address(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// reply is an answer that was read to its end.
type reply struct {
	status int
	header http.Header
	body   string
}

// send sends a request with headers given as name, value pairs. It may be called
// from any goroutine.
func (p *peer) send(client *http.Client, method, path, body string, header ...string) (reply, error) {
	r, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	res, err := client.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(text)}, err
}

// ask is send for those who can fail the test.
func (p *peer) ask(t *testing.T, method, path, body string, header ...string) reply {
	t.Helper()
	a, err := p.send(http.DefaultClient, method, path, body, header...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// policyFile writes a policy to a file.
func policyFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "limits.yml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
