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

// names are the servers, in the order of the table. The first word is the name of [spelling.Server].
var names = []string{
	"nginx", "tomcat", "jetty", "spring", "undertow", "javalin", "jersey", "vertx",
	"express 4", "express 5", "koa", "polka", "fastify", "hono", "node",
	"starlette", "sanic", "bottle", "flask", "cherrypy", "rails",
	"php", "php apache", "php fpm", "php slim", "go", "gin", "echo", "chi", "fiber",
}

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
		{[]string{"java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-cp", tool(t, "servlets-2") + "/*", "testdata/java/Servers.java"}, "", []string{"tomcat", "jetty", "spring", "undertow", "javalin", "jersey", "vertx"}},
		{[]string{"node", "testdata/node/servers.js"}, "", []string{"express 4", "express 5", "koa", "polka", "fastify", "hono", "node"}},
		{[]string{"python3", "testdata/python/server.py"}, "PYTHONPATH=" + tool(t, "python-servers-1"), []string{"starlette", "sanic", "bottle", "flask", "cherrypy"}},
		{[]string{routers}, "", []string{"gin", "echo", "chi", "fiber"}},
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
	site, pool := phpSite(t), net.JoinHostPort("127.0.0.1", strconv.Itoa(servers.Port(t)))
	run(t, []string{installed(t, "/usr/sbin/php-fpm*"), "-F", "-R", "-n", "-y", file(t, "fpm.conf", `[global]
error_log = /dev/null
daemonize = no
[www]
user = nobody
group = nogroup
listen = `+pool+`
pm = static
pm.max_children = 2
`)}, "")
	for name, command := range map[string]func(addr string) []string{
		"php slim": func(addr string) []string { return []string{"php", "-S", addr, "-t", "testdata/php/slim"} },
		"php apache": func(addr string) []string {
			return []string{program("apache2"), "-X", "-f", apacheFile(t, addr, site)}
		},
		"php fpm": func(addr string) []string {
			return []string{program("nginx"), "-p", t.TempDir(), "-e", "stderr", "-c", nginxFile(t, addr, `root `+site+`;
location / { try_files $uri /index.php$is_args$args; }
location ~ \.php(/|$) { fastcgi_split_path_info ^(.+?\.php)(/.*)$; try_files $fastcgi_script_name =404;
include /etc/nginx/fastcgi_params; fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; fastcgi_pass `+pool+`; }`)}
		},
		"php": func(addr string) []string { return []string{"php", "-S", addr, "testdata/php/route.php"} },
		"rails": func(addr string) []string {
			return []string{"puma", "-q", "-t", "1:1", "-b", "tcp://" + addr, "testdata/ruby/config.ru"}
		},
		"nginx": func(addr string) []string {
			return []string{program("nginx"), "-p", t.TempDir(), "-e", "stderr", "-c", nginxFile(t, addr, `location = /v1/token { return 200 token; }
location /admin/ { return 200 admin; }
location = /script.php { return 200 script; }
location / { return 200 other; }`)}
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
	for pattern, name := range map[string]string{"/v1/token": "token", "/admin/": "admin", "/script.php": "script", "/": "other"} {
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

// installed is the file whose name has a version in it.
func installed(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("scripts/install-test-programs has not been run: there is no %s, %v", pattern, err)
	}
	return found[len(found)-1]
}

// program finds a program that may stand where only root looks.
func program(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	return "/usr/sbin/" + name
}

// phpSite is a directory with an application that any user may read.
func phpSite(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "headgate-php-") //nolint:usetesting // Nobody else may enter TempDir.
	if err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		err = os.CopyFS(dir, os.DirFS("testdata/php/symfony"))
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func apacheFile(t *testing.T, addr, site string) string {
	t.Helper()
	dir := t.TempDir()
	text := "ServerRoot " + dir + "\nServerName localhost\nListen " + addr + "\nPidFile " + dir + "/pid\nMutex file:" + dir + "\nErrorLog /dev/null\n"
	text += "KeepAlive Off\n" // or proxies that read to the end of the connection wait for five seconds
	for _, name := range []string{"mpm_prefork", "authz_core", "dir"} {
		text += "LoadModule " + name + "_module /usr/lib/apache2/modules/mod_" + name + ".so\n"
	}
	return file(t, "apache.conf", text+"LoadModule php_module "+installed(t, "/usr/lib/apache2/modules/libphp*.so")+`
User nobody
Group nogroup
DocumentRoot `+site+`
FallbackResource /index.php
<FilesMatch "\.ph(ar|p|tml)$">
SetHandler application/x-httpd-php
</FilesMatch>
`)
}

func nginxFile(t *testing.T, addr, locations string) string {
	t.Helper()
	dir := t.TempDir()
	return file(t, "nginx.conf", `daemon off; master_process off; pid `+dir+`/pid; error_log stderr crit; worker_processes 1; events {}
http { access_log off; client_body_temp_path `+dir+`; proxy_temp_path `+dir+`; fastcgi_temp_path `+dir+`; uwsgi_temp_path `+dir+`; scgi_temp_path `+dir+`;
server { listen `+addr+`;
`+locations+`
} }
`)
}

// file writes a file for a program.
func file(t *testing.T, name, text string) string {
	t.Helper()
	name = filepath.Join(t.TempDir(), name)
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
			if i := strings.LastIndexByte(line, ' '); i > 0 && slices.Contains(names, line[:i]) {
				ports[line[:i]] = line[i+1:]
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

// protected are the bodies of the routes that rules are about.
var protected = []string{"token", "admin", "script"}

// reading is what a server reads in a target, in the words of the table.
func reading(addr, target string) (string, error) {
	status, body, err := ask(addr, http.MethodPost, target)
	switch {
	case err != nil:
		return "", err
	case status == http.StatusOK && (slices.Contains(protected, body) || body == "other"):
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
