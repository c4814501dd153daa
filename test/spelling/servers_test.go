package spelling

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/spelling/spellingtest"
	"github.com/headgate/headgate/test/servers"
)

var update = flag.Bool("update", false, "write the table of what servers read")

// within bounds everything that is waited for.
const within = 2 * time.Minute

// names are the servers, in the order of the table.
var names = []string{"nginx", "tomcat", "jetty", "spring", "express4", "express5", "node", "starlette", "rails", "php", "go"}

// addresses are where the servers serve, by their names.
type addresses map[string]string

// start starts all servers, until the test ends.
func start(t *testing.T) addresses {
	t.Helper()
	all := make(addresses)
	var mu sync.Mutex
	var started sync.WaitGroup
	add := func(name, addr string) {
		mu.Lock()
		defer mu.Unlock()
		all[name] = addr
	}
	for _, p := range []struct {
		command []string
		env     string
		names   []string
	}{
		{[]string{"java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-cp", tool(t, "servlets-1") + "/*", "testdata/java/Servers.java"}, "", []string{"tomcat", "jetty", "spring"}},
		{[]string{"node", "testdata/node/servers.js"}, "", []string{"express4", "express5", "node"}},
		{[]string{"python3", "testdata/python/server.py"}, "PYTHONPATH=" + tool(t, "starlette-1.10.0"), []string{"starlette"}},
	} {
		started.Go(func() {
			ports, err := announced(t, p.command, p.env, p.names)
			if err != nil {
				t.Error(err)
			}
			for name, port := range ports {
				add(name, "127.0.0.1:"+port)
			}
		})
	}
	for name, command := range map[string]func(addr string) []string{
		"php": func(addr string) []string { return []string{"php", "-S", addr, "testdata/php/route.php"} },
		"rails": func(addr string) []string {
			return []string{"puma", "-q", "-t", "1:1", "-b", "tcp://" + addr, "testdata/ruby/config.ru"}
		},
		"nginx": func(addr string) []string {
			return []string{program("nginx"), "-p", t.TempDir(), "-e", "stderr", "-c", nginxFile(t, addr)}
		},
	} {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(servers.Port(t)))
		run(t, command(addr), "")
		started.Go(func() {
			if err := answers(addr); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			add(name, addr)
		})
	}
	mux := http.NewServeMux()
	for pattern, name := range map[string]string{"/v1/token": "token", "/admin/": "admin", "/": "other"} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	add("go", s.Listener.Addr().String())
	started.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return all
}

// tool is a directory that scripts/install-test-programs has made.
func tool(t *testing.T, name string) string {
	t.Helper()
	dir, err := filepath.Abs("../../bin/tools/" + name)
	if err == nil {
		_, err = os.Stat(dir)
	}
	if err != nil {
		t.Fatalf("scripts/install-test-programs has not been run: %v", err)
	}
	return dir
}

// program finds a program that may stand where only root looks.
func program(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	return "/usr/sbin/" + name
}

func nginxFile(t *testing.T, addr string) string {
	t.Helper()
	dir := t.TempDir()
	text := `daemon off; pid ` + dir + `/pid; error_log stderr crit; worker_processes 1; events {}
http { access_log off; client_body_temp_path ` + dir + `; proxy_temp_path ` + dir + `; fastcgi_temp_path ` + dir + `; uwsgi_temp_path ` + dir + `; scgi_temp_path ` + dir + `;
server { listen ` + addr + `;
location = /v1/token { return 200 token; }
location /admin/ { return 200 admin; }
location / { return 200 other; } } }
`
	name := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// run starts a program that ends with the test: when its input does, or by a signal.
func run(t *testing.T, command []string, env string) io.Reader {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = io.Discard
	if env != "" {
		cmd.Env = append(os.Environ(), env)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s: %v; scripts/install-test-programs installs it", command[0], err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Signal(os.Interrupt)
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
	})
	return out
}

// announced runs a program that prints names and ports, and returns the ports by the
// names when they are all there.
func announced(t *testing.T, command []string, env string, names []string) (map[string]string, error) {
	lines := make(chan string)
	out := run(t, command, env)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	ports := make(map[string]string)
	deadline := time.After(within)
	for len(ports) < len(names) {
		select {
		case line, ok := <-lines:
			if !ok {
				return nil, fmt.Errorf("%s has ended", strings.Join(command, " "))
			}
			if name, port, _ := strings.Cut(line, " "); slices.Contains(names, name) {
				ports[name] = port
			}
		case <-deadline:
			return nil, fmt.Errorf("%s has not begun within %v", strings.Join(command, " "), within)
		}
	}
	go func() {
		for range lines {
		}
	}()
	return ports, nil
}

// answers waits until somebody serves at an address.
func answers(addr string) error {
	for deadline := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			return c.Close()
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

// ask sends a request whose target is this very text, with more lines of headers, and
// returns the status and the body of the answer.
func ask(addr, method, target string, headers ...string) (status int, body string, err error) {
	c, err := net.DialTimeout("tcp", addr, within)
	if err != nil {
		return 0, "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		return 0, "", err
	}
	text := method + " " + target + " HTTP/1.1\r\nHost: " + addr + "\r\nContent-Length: 0\r\nConnection: close\r\n"
	for _, line := range headers {
		text += line + "\r\n"
	}
	if _, err := io.WriteString(c, text+"\r\n"); err != nil {
		return 0, "", err
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, "", nil // refused without an answer
	}
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	return res.StatusCode, strings.TrimSpace(string(all)), err
}

// reading is what a server reads in a target, in the words of the table.
func reading(addr, target string) (string, error) {
	status, body, err := ask(addr, http.MethodPost, target)
	switch {
	case err != nil:
		return "", err
	case status == http.StatusOK && (body == "token" || body == "admin" || body == "other"):
		return body, nil
	case 300 <= status && status < 400:
		return "redirect", nil
	}
	return "refused", nil
}

// TestServers starts all servers once: that takes seconds of a processor. None of them keeps
// anything between requests.
func TestServers(t *testing.T) {
	all := start(t)
	t.Run("table", func(t *testing.T) { readings(t, all) })
	t.Run("attacks", func(t *testing.T) { attacks(t, all) })
}

// The table says what the servers do.
func readings(t *testing.T, all addresses) {
	table, targets, err := spellingtest.Servers()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("target\t" + strings.Join(names, "\t") + "\n")
	for _, target := range targets {
		b.WriteString(strconv.Quote(target))
		for i, name := range names {
			read, err := reading(all[name], target)
			if err != nil {
				t.Fatalf("%s, %q: %v", name, target, err)
			}
			b.WriteString("\t" + read)
			if !*update && (len(table) != len(names) || table[i].Read[target] != read) {
				t.Errorf("%s reads %q as %s, which the table does not say", name, target, read)
			}
		}
		b.WriteString("\n")
	}
	if *update {
		if err := os.WriteFile("../../internal/spelling/spellingtest/servers.tsv", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
