package proxies

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/test/scripts"
	"github.com/headgate/headgate/test/servers"
)

// headgate is the program under test, which TestMain builds.
var headgate string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if headgate, err = servers.Headgate(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// caddy builds Caddy, once.
var caddy = sync.OnceValues(func() (string, error) {
	return servers.Build("caddy", "test/proxies/testdata/caddy", ".", "GOWORK=off")
})

// peer is a proxy that examples/forward-auth has started, with the Headgate that it
// asks.
type peer struct {
	*scripts.Script
	name string
	url  string // of the proxy
}

// names are the proxies.
var names = []string{"nginx", "haproxy", "caddy", "traefik"}

// start starts a proxy, and a Headgate with the policy and more options if it gets
// them. Without a policy nobody is there to be asked. Traefik, which cannot answer by itself, stands
// before an application of the test: that of the example is built and linked each time.
func start(t *testing.T, name, policy string, options ...string) *peer {
	t.Helper()
	app := ""
	if name == "traefik" {
		app = appServer(t)
	}
	return startBefore(t, name, policy, app, options...)
}

// startBefore is start, with the proxy before another application than that of the example if
// there is one.
func startBefore(t *testing.T, name, policy, app string, options ...string) *peer {
	t.Helper()
	env := []string{"PROGRAM=none"}
	if policy != "" {
		env = []string{"PROGRAM=" + headgate, "LIMITS=" + policy}
	}
	if name == "caddy" {
		program, err := caddy()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, "CADDY="+program)
	}
	if app != "" {
		env = append(env, "FORWARD="+app)
	}
	return startWith(t, name, env, options...)
}

// startAnother starts a proxy that asks a Headgate which can be sent a signal.
func startAnother(t *testing.T, name string) (p *peer, signal func(syscall.Signal) error) {
	t.Helper()
	at := address(t)
	cmd := exec.Command(headgate, "serve", "--listen", at, "--config", "../../examples/forward-auth/limits.yml")
	servers.Bind(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // It was killed.
	})
	env := []string{"PROGRAM=none", "HEADGATE=" + at}
	if name == "caddy" {
		program, err := caddy()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, "CADDY="+program)
	}
	p = startWith(t, name, env)
	await(t, at)
	return p, func(s syscall.Signal) error {
		if s == syscall.SIGSTOP {
			return servers.Halt(cmd.Process.Pid)
		}
		err := cmd.Process.Signal(s)
		if s == syscall.SIGKILL && err == nil {
			_ = cmd.Wait() // It was killed.
		}
		return err
	}
}

// await waits until somebody listens at the address.
func await(t *testing.T, at string) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", at)
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("nobody listens at %s: %v", at, err)
		}
	}
}

// startWith starts a proxy with the environment of examples/forward-auth/run. Addresses that stand
// in it go before free ones.
func startWith(t *testing.T, name string, env []string, options ...string) *peer {
	t.Helper()
	p := &peer{name: name}
	p.Script = scripts.Serving(t, func() *scripts.Script {
		proxy := address(t)
		p.url = "http://" + proxy
		return scripts.Start(t, "../../examples/forward-auth/run",
			append([]string{"PROXY=" + proxy, "APP=" + address(t), "HEADGATE=" + address(t)}, env...), append([]string{name}, options...)...)
	}, func(s *scripts.Script) bool { return s.Await("(?m)^"+name+" is ready") != nil })
	return p
}

// address is one of the loopback interface on which nothing listens, and that no
// other test gets.
func address(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(servers.Port(t)))
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
	ctx, cancel := context.WithTimeout(context.Background(), servers.Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
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
