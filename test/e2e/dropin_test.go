package e2e

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/headgate/headgate/test/servers"
)

// dropIn is what docs/from-envoyproxy-ratelimit.md shows, word by word.
type dropIn struct {
	command  string   // of the container
	settings []string // of its environment
	config   string   // the file edge.yaml
	script   string   // the requests
	prints   string   // what the script prints
	json     string   // the body of the request to /json
}

func readDropIn(t *testing.T) dropIn {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "from-envoyproxy-ratelimit.md"))
	if err != nil {
		t.Fatal(err)
	}
	find := func(pattern string) string {
		found := regexp.MustCompile("(?s)" + pattern).FindStringSubmatch(string(page))
		if found == nil {
			t.Fatalf("the page has nothing like %s", pattern)
		}
		return found[1]
	}
	d := dropIn{
		command: find(`\n    command: ([^\n]+)\n    environment:\n`),
		config:  find("```yaml\n(domain: edge\n.*?)```"),
		script:  find("```sh\n(for user in .*?)```"),
		prints:  find("```sh\nfor user in .*?```\n```console\n(.*?)```"),
		json:    find(`curl -d '([^']+)' http://127\.0\.0\.1:8080/json`),
	}
	for _, line := range regexp.MustCompile(`\n      ([A-Z_]+): "?([^"\n]+)"?`).FindAllStringSubmatch(find("\n    environment:(.*?)\n    volumes:\n      - ./config:/data/ratelimit/config\n"), -1) {
		d.settings = append(d.settings, line[1]+"="+line[2])
	}
	return d
}

// TestChangeTheImage follows docs/from-envoyproxy-ratelimit.md, before the image is changed and
// after: the same settings, the same files, the same Envoy, the same answers.
func TestChangeTheImage(t *testing.T) {
	t.Parallel()
	program := buildOriginal(t)
	awayFromMidnight(t)
	page, dir := readDropIn(t), t.TempDir()
	config := filepath.Join(dir, "data", "ratelimit", "config")
	if err := os.MkdirAll(config, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(config, "edge.yaml"), []byte(page.config), 0o600); err != nil {
		t.Fatal(err)
	}
	redis := servers.Start(t, servers.Redis)
	var answers []string
	for name, start := range map[string][]string{
		"before": {program},
		// The entry point of the image, and the command.
		"after": {binary, page.command},
	} {
		ports := freePorts(t, 2)
		cmd := command(t, start[0], start[1:]...)
		cmd.Env = append(os.Environ(), "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0", "PORT="+ports[0], "GRPC_PORT="+ports[1], "REDIS_TIMEOUT=20s")
		for _, setting := range page.settings {
			setting = strings.Replace(setting, "=redis:6379", "="+redis.Addr(), 1)
			cmd.Env = append(cmd.Env, strings.Replace(setting, "=/data", "="+filepath.Join(dir, "data"), 1))
		}
		runBeside(t, cmd)
		client := rateLimiter(t, net.JoinHostPort("127.0.0.1", ports[1]))
		// What the configuration does not know passes; the answer says that the service is there.
		if got := told(t, client, requestOf("none", "user", "anna")); got != "OK | OK 0" {
			t.Errorf("%s: another domain: %s", name, got)
		}
		proxy := startEnvoy(t, net.JoinHostPort("127.0.0.1", ports[1]))
		out, err := command(t, "bash", "-c", strings.ReplaceAll(page.script, "http://127.0.0.1:8888", proxy.base)).Output()
		if err != nil || string(out) != page.prints {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, out, page.prints)
		}
		s := &server{base: "http://127.0.0.1:" + ports[0]}
		if a, err := s.ask(http.DefaultClient, "/healthcheck", ""); err != nil || a.status != http.StatusOK {
			t.Errorf("%s: /healthcheck: %d, %v", name, a.status, err)
		}
		a, err := s.ask(http.DefaultClient, "/json", page.json)
		answer := new(pb.RateLimitResponse)
		if err != nil || a.status != http.StatusOK || protojson.Unmarshal([]byte(a.text), answer) != nil {
			t.Errorf("%s: /json: %d %s, %v", name, a.status, a.text, err)
		}
		answers = append(answers, inWords(answer))
	}
	if answers[0] != answers[1] || !strings.HasPrefix(answers[0], "OK | OK 2 of 3 per DAY") {
		t.Errorf("/json answers %s and %s", answers[0], answers[1])
	}
}

// requestOf is a request with one descriptor of one entry.
func requestOf(domain, key, value string) *pb.RateLimitRequest {
	return &pb.RateLimitRequest{Domain: domain, Descriptors: []*ratelimit.RateLimitDescriptor{
		{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: key, Value: value}}},
	}}
}

// runBeside starts a program that is killed when the test ends.
func runBeside(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // It was killed.
	})
}
