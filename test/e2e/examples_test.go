package e2e

import (
	"bytes"
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

// example is a script of an example that runs.
type example struct {
	cmd *exec.Cmd

	mu  sync.Mutex // guards out
	out bytes.Buffer
}

func (e *example) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.out.Write(p)
}

func (e *example) logged() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.out.String()
}

// startExample starts the script as it is written, with what the environment may say
// to it and its words.
func startExample(t *testing.T, name string, environment []string, words ...string) *example {
	t.Helper()
	e := &example{cmd: exec.Command("../../examples/"+name+"/run", words...)}
	e.cmd.Env = append(append(os.Environ(), "PROGRAM="+binary), environment...)
	e.cmd.Stdout, e.cmd.Stderr = e, e
	// Whatever it starts is in a group of its own.
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(e.cmd.Process.Pid, syscall.SIGTERM)
		kill := time.AfterFunc(within, func() { _ = syscall.Kill(-e.cmd.Process.Pid, syscall.SIGKILL) })
		if err := e.cmd.Wait(); err != nil {
			t.Errorf("the script ended with %v", err)
		}
		if !kill.Stop() {
			t.Error("what the script has started does not end with it")
		}
		if t.Failed() {
			t.Logf("the example says:\n%s", e.logged())
		}
	})
	return e
}

// await waits until what the example serves answers with 200.
func (e *example) await(t *testing.T, url string) {
	t.Helper()
	for deadline := time.Now().Add(2 * within); ; time.Sleep(20 * time.Millisecond) {
		response, err := http.Get(url)
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not answer: %v\n%s", url, err, e.logged())
		}
	}
}

// codes asks so often, with a header, and returns the status codes.
func (e *example) codes(t *testing.T, n int, method, url, header, value string) string {
	t.Helper()
	client := &http.Client{Transport: new(http.Transport), Timeout: within}
	defer client.CloseIdleConnections()
	var all []string
	for range n {
		request, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set(header, value)
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		all = append(all, response.Status[:3])
	}
	return strings.Join(all, " ")
}

// ported writes a copy of an example's file with other ports.
func ported(t *testing.T, name string, edits ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", name))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(edits); i += 2 {
		if !strings.Contains(string(text), edits[i]) {
			t.Fatalf("%s has no %q", name, edits[i])
		}
	}
	file := filepath.Join(t.TempDir(), filepath.Base(name))
	if err := os.WriteFile(file, []byte(strings.NewReplacer(edits...).Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The gateway's example, started by its one command.
func TestGatewayExampleAsItIsStarted(t *testing.T) {
	t.Parallel()
	ports := freePorts(t, 4)
	file := ported(t, "gateway/gateway.yml", ":9001", ":"+ports[0], ":9002", ":"+ports[1])
	e := startExample(t, "gateway", []string{"GATEWAY=" + file, "PORTS=" + ports[0] + " " + ports[1]}, "--listen", "127.0.0.1:"+ports[2], "--admin-listen", "127.0.0.1:"+ports[3])
	base := "http://127.0.0.1:" + ports[2]
	// A shell that has not become the program yet may lose the signal that ends it.
	for _, port := range ports[:2] {
		e.await(t, "http://127.0.0.1:"+port+"/healthz")
	}
	e.await(t, base+"/healthz")
	if got := e.codes(t, 4, http.MethodPost, base+"/token", "X-API-Key", "k1"); got != "200 200 200 429" {
		t.Errorf("four requests: %s", got)
	}
	for deadline := time.Now().Add(within); !strings.Contains(e.logged(), "verdict=denied rule=token"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the denial is not logged")
		}
	}
}

// Envoy's example, started by its one command.
func TestEnvoyExampleAsItIsStarted(t *testing.T) {
	t.Parallel()
	ports := freePorts(t, 4)
	file := ported(t, "envoy/envoy.yaml", "port_value: 8888", "port_value: "+ports[0], "port_value: 8889", "port_value: "+ports[1],
		"port_value: 8081", "port_value: "+ports[2], "timeout: 0.1s", "timeout: 20s")
	program, err := filepath.Abs(envoyProgram)
	if err != nil {
		t.Fatal(err)
	}
	e := startExample(t, "envoy", []string{"CONFIG=" + file, "ENVOY=" + program, "GRPC=127.0.0.1:" + ports[2]}, "--listen", "127.0.0.1:"+ports[3])
	base := "http://127.0.0.1:" + ports[0] + "/"
	// Without Headgate, Envoy would let everything pass.
	e.await(t, "http://127.0.0.1:"+ports[3]+"/readyz")
	e.await(t, base)
	if got := e.codes(t, 6, http.MethodGet, base, "X-User", "anna"); got != "200 200 200 200 200 429" {
		t.Errorf("six requests: %s", got)
	}
}
