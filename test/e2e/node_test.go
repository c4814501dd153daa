package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/test/scripts"
	"github.com/headgate/headgate/test/servers"
)

const nodeDir = "../../client/node"

// The tests of the package for Node.js, against this program and real releases of
// Express.
func TestNodePackage(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(nodeDir, "test", "*.test.js"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no tests: %v", err)
	}
	args := []string{"--test"}
	for _, file := range files {
		args = append(args, filepath.Join("test", filepath.Base(file)))
	}
	out := runNode(t, args...)
	if !strings.Contains(out, "\n# fail 0\n") || strings.Contains(out, "\n# pass 0\n") || !strings.Contains(out, "\n# skipped 0\n") {
		t.Error(out)
	}
}

// Its types fit what programs in TypeScript write.
func TestNodeTypes(t *testing.T) {
	t.Parallel()
	// What it knows of files that are the same stays true for the next run.
	runNode(t, filepath.Join("node_modules", "typescript", "bin", "tsc"), "--project", "test",
		"--incremental", "--tsBuildInfoFile", filepath.Join("node_modules", ".cache", "types.tsbuildinfo"))
}

// Over TLS, its client shows its certificate, and believes only a server whose authority it knows.
func TestNodeTLS(t *testing.T) {
	t.Parallel()
	c, strangers := servers.NewCertificates(t), servers.NewCertificates(t)
	s, port := serveRESP(t, "--tls-cert", c.ServerCert, "--tls-key", c.ServerKey, "--tls-client-ca", c.CA)
	const program = `
const { readFileSync } = require('node:fs');
const { Client, UnavailableError } = require('.');
const [port, url, ...files] = process.argv.slice(1);
const [ca, cert, key, otherCA, otherCert, otherKey] = files.map((file) => readFileSync(file));
const check = async (url, tls) => {
  try {
    const { allowed, headers } = await new Client({ url, tls, timeout: 30000, retry: { tries: 1 } }).check({ descriptor: { route: 'GET /shared' } });
    return allowed && headers['x-ratelimit-limit'];
  } catch (err) {
    return err instanceof UnavailableError && err.status === 0 ? 'no answer' : err.stack;
  }
};
(async () => {
  for (const to of ['rediss://127.0.0.1:' + port, 'rediss://localhost:' + port, url]) {
    console.log(await check(to, { ca, cert, key }), await check(to, { ca }), await check(to, { ca, cert: otherCert, key: otherKey }), await check(to, { ca: otherCA, cert, key }));
  }
})();`
	out := runNode(t, "-e", program, port, s.base, c.CA, c.ClientCert, c.ClientKey, strangers.CA, strangers.ClientCert, strangers.ClientKey)
	if want := strings.Repeat("100 no answer no answer no answer\n", 3); out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

// runNode runs a command of Node.js in the package's directory, to its end.
func runNode(t *testing.T, args ...string) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(nodeDir, "node_modules")); err != nil {
		t.Fatalf("%v: run `make test`, which installs what the package's tests need", err)
	}
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Dir = nodeDir
	cmd.Env = append(os.Environ(), "HEADGATE_PROGRAM="+binary)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("node %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// The example with Express, started by its one command.
func TestExpressExample(t *testing.T) {
	t.Parallel()
	var s server
	scripts.Serving(t, func() *scripts.Script {
		ports := freePorts(t, 2)
		listen := []string{"HTTP=127.0.0.1:" + ports[0], "RESP=127.0.0.1:" + ports[1]}
		return scripts.Start(t, "../../examples/express/run", append(listen, "PROGRAM="+binary, "PORT=0", "TIMEOUT=30000"))
	}, func(e *scripts.Script) bool {
		said := e.Await(`listening at (\S+)\n`)
		if said != nil {
			s.base = said[1]
		}
		return said != nil
	})
	for i, tt := range []struct {
		path string
		code int
		text string
	}{
		{"/items/7", 200, "item 7\n"},
		{"/search", 200, "found nothing\n"},
		{"/search", 429, `"violated-policies":["search"]`},
		{"/items/7", 200, "item 7\n"},
		{"/items/8", 200, "item 8\n"},
		{"/items/9", 200, "item 9\n"},
		{"/items/9", 429, `"violated-policies":["client per 30s"]`},
	} {
		a := s.get(t, tt.path)
		if a.status != tt.code || !strings.Contains(a.text, tt.text) || a.header.Get("X-RateLimit-Limit") == "" || (a.header.Get("Retry-After") != "") != (tt.code == http.StatusTooManyRequests) {
			t.Errorf("request %d, %s: %d %q %v", i+1, tt.path, a.status, a.text, a.header)
		}
	}
}
