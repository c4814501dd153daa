package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/test/scripts"
)

// statuses asks so often, with a header, and returns the status codes.
func statuses(t *testing.T, n int, method, url, header, value string) string {
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
	var base string
	e := scripts.Serving(t, func() *scripts.Script {
		ports := freePorts(t, 4)
		base = "http://127.0.0.1:" + ports[2]
		file := ported(t, "gateway/gateway.yml", ":9001", ":"+ports[0], ":9002", ":"+ports[1])
		return scripts.Start(t, "../../examples/gateway/run", []string{"PROGRAM=" + binary, "GATEWAY=" + file, "PORTS=" + ports[0] + " " + ports[1]},
			"--listen", "127.0.0.1:"+ports[2], "--admin-listen", "127.0.0.1:"+ports[3])
	}, func(e *scripts.Script) bool { return e.Answers(base + "/healthz") })
	if got := statuses(t, 4, http.MethodPost, base+"/token", "X-API-Key", "k1"); got != "200 200 200 429" {
		t.Errorf("four requests: %s", got)
	}
	if e.Await("verdict=denied rule=token") == nil {
		t.Error("the denial is not logged")
	}
}

// Envoy's example, started by its one command.
func TestEnvoyExampleAsItIsStarted(t *testing.T) {
	t.Parallel()
	program, err := filepath.Abs(envoyProgram)
	if err != nil {
		t.Fatal(err)
	}
	var base string
	scripts.Serving(t, func() *scripts.Script {
		ports := freePorts(t, 4)
		base = "http://127.0.0.1:" + ports[0] + "/"
		file := ported(t, "envoy/envoy.yaml", "port_value: 8888", "port_value: "+ports[0], "port_value: 8889", "port_value: "+ports[1],
			"port_value: 8081", "port_value: "+ports[2], "timeout: 0.1s", "timeout: 20s")
		return scripts.Start(t, "../../examples/envoy/run", []string{"PROGRAM=" + binary, "CONFIG=" + file, "ENVOY=" + program, "GRPC=127.0.0.1:" + ports[2]},
			"--listen", "127.0.0.1:"+ports[3])
	}, func(e *scripts.Script) bool {
		// It asks Headgate at once; without Headgate, Envoy would let everything pass.
		return e.Await("msg=\"serving gRPC\"") != nil && e.Answers(base)
	})
	if got := statuses(t, 6, http.MethodGet, base, "X-User", "anna"); got != "200 200 200 200 200 429" {
		t.Errorf("six requests: %s", got)
	}
}
