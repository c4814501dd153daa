package grpc

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// program starts a program and returns a line of what it prints that has the text,
// once it is there. The program ends with the test.
func program(t *testing.T, has string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // It is killed.
		_ = w.Close()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	var all strings.Builder
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		all.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), has) {
			go func() { _, _ = io.Copy(io.Discard, r) }()
			return lines.Text()
		}
	}
	t.Fatalf("%s never said %q:\n%s", name, has, all.String())
	return ""
}

// output is what a program prints until it ends well.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// patience is how long the server may take on a busy machine.
const patience = "10s"

// TestPrograms: two services that count at one server share their limits.
func TestPrograms(t *testing.T) {
	dir := t.TempDir()
	for _, build := range []*exec.Cmd{
		exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", dir, "./service", "./caller", "./ask", "./login"),
		exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", dir, "./cmd/headgate"),
	} {
		if strings.HasSuffix(build.Args[len(build.Args)-1], "headgate") {
			build.Dir = filepath.Join("..", "..", "server")
		}
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", build.Args, err, out)
		}
	}
	said := program(t, `msg="serving gRPC"`, filepath.Join(dir, "headgate"), "serve", "--config", "limits.yml",
		"--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0", "--grpc-store")
	_, server, _ := strings.Cut(said, "address=")

	if got := output(t, filepath.Join(dir, "ask"), "-headgate", server, "-timeout", patience); got != "20 admitted, 980 denied, 0 without an answer\n" {
		t.Errorf("ask says %q", got)
	}
	want := "correct OK\ncorrect OK\n"
	for i := range 5 {
		want += fmt.Sprintf("%-7d Unauthorized\n", i+1)
	}
	if got := output(t, filepath.Join(dir, "login"), "-headgate", server, "-timeout", patience); got != want+"6       too many failures; try again in 15m0s\n" {
		t.Errorf("login says %q", got)
	}
	service := func(args ...string) string {
		line := program(t, "listening at", filepath.Join(dir, "service"), append(args, "-listen", "127.0.0.1:0", "-headgate", server, "-timeout", patience)...)
		return strings.TrimPrefix(line, "listening at ")
	}
	first, second := service("-limit", "3 per 1h"), service("-limit", "3 per 1h")
	caller := filepath.Join(dir, "caller")
	if got := output(t, caller, "-service", first, "-calls", "2"); got != "call 1: done, 2 left\ncall 2: done, 1 left\n" {
		t.Errorf("the first service: %q", got)
	}
	got := output(t, caller, "-service", second, "-calls", "3")
	for _, want := range []string{"call 1: done, 0 left\n", `call 2: ResourceExhausted. Rule "client" admits 3 per 1h; the request fits in `, "call 3: not made. The server wants no such call for another "} {
		if !strings.Contains(got, want) {
			t.Errorf("the second service: %q, want %q", got, want)
		}
	}
	if got := output(t, caller, "-service", first, "-key", "k2", "-calls", "1"); got != "call 1: done, 2 left\n" {
		t.Errorf("another key: %q", got)
	}
	if got := output(t, caller, "-service", service("-limit", "1 per 200ms"), "-key", "k3", "-calls", "2", "-wait", "30s"); got != "call 1: done, 0 left\ncall 2: done, 0 left\n" {
		t.Errorf("a caller that waits: %q", got)
	}
}
