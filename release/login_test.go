package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// tutorial is a section of docs/login.md that somebody follows in a directory.
type tutorial struct {
	dir string
	env []string
	// edit puts this test's addresses and places in place of those of the page.
	edit *strings.Replacer
	// commands are the blocks to type, in order, without the lines that change the system.
	commands []string
	// outputs are the blocks that say what is printed.
	outputs []string
}

var (
	fence = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")
	// savedAs is what the page says before a block that is a file.
	savedAs = regexp.MustCompile("this as\\s+`([^`]+)`")
)

// follow reads a section of the page and saves the files that it has.
func follow(t *testing.T, section string, env []string, edit ...string) *tutorial {
	t.Helper()
	page := string(read(t, "../docs/login.md"))
	_, text, ok := strings.Cut(page, "\n## "+section+"\n")
	if !ok {
		t.Fatalf("docs/login.md has no section %q", section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	dir := t.TempDir()
	place := append([]string{"/etc/headgate", dir, "/etc/nginx/conf.d", dir}, edit...)
	s := &tutorial{dir: dir, env: env, edit: strings.NewReplacer(place...)}
	_, policy, _ := strings.Cut(page, "```yaml\n")
	policy, _, _ = strings.Cut(policy, "```\n")
	s.save(t, "policy.yaml", policy)
	end := 0
	for _, at := range fence.FindAllStringSubmatchIndex(text, -1) {
		before, language, block := text[end:at[0]], text[at[2]:at[3]], text[at[4]:at[5]]
		end = at[1]
		switch name := savedAs.FindStringSubmatch(before); {
		case name != nil:
			s.save(t, filepath.Base(name[1]), block)
		case language == "sh":
			s.commands = append(s.commands, regexp.MustCompile(`(?m)^sudo .*\n`).ReplaceAllString(block, ""))
		default:
			s.outputs = append(s.outputs, block)
		}
	}
	return s
}

func (s *tutorial) save(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(s.edit.Replace(text)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// next is the next block of commands.
func (s *tutorial) next(t *testing.T) string {
	t.Helper()
	if len(s.commands) == 0 {
		t.Fatal("docs/login.md has fewer blocks of commands")
	}
	block := s.commands[0]
	s.commands = s.commands[1:]
	return s.edit.Replace(block)
}

// run runs the next block of commands, which must print what is wanted, as lines or as parts.
func (s *tutorial) run(t *testing.T, want ...string) {
	t.Helper()
	block := s.next(t)
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", block)
	cmd.Dir, cmd.Env = s.dir, s.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s\n%v\n%s", block, err, out)
	}
	rest := string(out)
	for _, part := range want {
		_, after, ok := strings.Cut(rest, part)
		if !ok {
			t.Fatalf("%s\nprinted\n%s\nwithout %q", block, out, part)
		}
		rest = after
	}
}

// start starts a command that serves at the address until the test ends.
func (s *tutorial) start(t *testing.T, address string, env []string, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = s.dir, env
	var mu sync.Mutex
	var log bytes.Buffer
	cmd.Stdout = writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(p)
	})
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended: // It was told to end.
			t.Logf("%s ended: %v", name, err)
		case <-time.After(2 * time.Minute):
			_ = cmd.Process.Kill()
			t.Errorf("%s %q has not ended within two minutes after SIGTERM", name, args)
		}
	})
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			conn.Close()
			return
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s %q ended: %v\n%s", name, args, err, log.Bytes())
		default:
		}
		if time.Now().After(deadline) {
			mu.Lock()
			defer mu.Unlock()
			t.Fatalf("%s %q does not listen at %s:\n%s", name, args, address, log.Bytes())
		}
	}
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// What six guesses print: five are wrong, the sixth is not looked at.
var (
	guesses   = strings.Repeat("401\n", 5) + "429\n"
	successes = strings.Repeat("200\n", 6)
)

func TestLoginInGo(t *testing.T) {
	t.Parallel()
	stranger := newStranger(t)
	address := freeAddress(t)
	// The page's directory is made by its first command.
	s := follow(t, "In a Go program", stranger.env, "127.0.0.1:9000", address,
		"mkdir login\ncd login\n", "", "go run .\n", "go build -o login .\n")
	s.run(t)
	s.run(t)
	s.start(t, address, stranger.env, filepath.Join(s.dir, "login"))
	if s.outputs[0] != guesses {
		t.Errorf("the page says that six guesses print %q", s.outputs[0])
	}
	s.run(t, s.outputs[0])
	s.run(t, "429 Too Many Requests", "Retry-After: ")
	s.run(t, successes+"200\n200\n")
}

func TestLoginOverHTTP(t *testing.T) {
	t.Parallel()
	app, server := freeAddress(t), freeAddress(t)
	args, env := unit(t, "HEADGATE_LISTEN="+server)
	s := follow(t, "Over HTTP", withHeadgate(t, server), "127.0.0.1:9000", app, "127.0.0.1:8080", server,
		`("127.0.0.1", 9000)`, pair(app))
	s.start(t, server, env, program, args[1:]...)
	s.run(t, "ready")
	s.run(t, `"allowed":true`, `"remaining":19`, `"remaining":4`, `"remaining":19`, `"remaining":4`)
	if command := s.next(t); command != "python3 login.py\n" {
		t.Fatalf("the page goes on with %s", command)
	}
	s.start(t, app, os.Environ(), "python3", "login.py")
	s.run(t, guesses+successes)
}

func TestLoginBehindNginx(t *testing.T) {
	t.Parallel()
	app, gateway, admin, front := freeAddress(t), freeAddress(t), freeAddress(t), freeAddress(t)
	s := follow(t, "Behind nginx", withHeadgate(t, admin), "127.0.0.1:9000", app, "127.0.0.1:8000", gateway,
		"127.0.0.1:8088", front, `("127.0.0.1", 9000)`, pair(app))
	more := append(strings.Fields(s.edit.Replace(s.outputs[0])), "HEADGATE_LISTEN="+gateway, "HEADGATE_ADMIN_LISTEN="+admin)
	args, env := unit(t, more...)
	if s.next(t) != "" {
		t.Fatal("the page does not begin with what is installed")
	}
	if command := s.next(t); command != "python3 shop.py\n" {
		t.Fatalf("the page goes on with %s", command)
	}
	s.start(t, app, os.Environ(), "python3", "shop.py")
	s.start(t, gateway, env, program, args[1:]...)
	for range 2 { // The service and nginx are told of what is new.
		if command := s.next(t); command != "" {
			t.Fatalf("the page goes on with %s", command)
		}
	}
	s.save(t, "nginx.conf", "daemon off;\npid nginx.pid;\nevents {}\nhttp {\naccess_log off;\nclient_body_temp_path body;\n"+
		"proxy_temp_path proxy;\nfastcgi_temp_path fastcgi;\nuwsgi_temp_path uwsgi;\nscgi_temp_path scgi;\ninclude shop.conf;\n}\n")
	s.start(t, front, append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin"), nginx(t), "-p", s.dir, "-e", "stderr", "-c", "nginx.conf")
	s.run(t, guesses, "429 Too Many Requests", "Retry-After: ", successes)
	forged := exec.CommandContext(t.Context(), "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", "POST", "-u", "ada:lovelace",
		"-H", "X-Login-User: grace", "-H", "X-Forwarded-For: 203.0.113.7", "http://"+front+"/login")
	if out, err := forged.CombinedOutput(); err != nil || string(out) != "429" {
		t.Errorf("with forged headers: %v, %s", err, out)
	}
}

// pair is an address as Python writes it.
func pair(address string) string {
	host, port, _ := strings.Cut(address, ":")
	return `("` + host + `", ` + port + `)`
}

// withHeadgate is an environment in which headgate is the program that was built, and talks to the
// server.
func withHeadgate(t *testing.T, server string) []string {
	t.Helper()
	return append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"), "HEADGATE_SERVER=http://"+server)
}

// nginx is where nginx is. Debian keeps it off the PATH of users.
func nginx(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"nginx", "/usr/sbin/nginx"} {
		if found, err := exec.LookPath(name); err == nil {
			return found
		}
	}
	t.Fatal("nginx is not installed: scripts/install-test-programs does it")
	return ""
}
