package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A program in docs/languages.md, and what it prints by that.
type documented struct{ language, code, prints string }

// programs returns the programs of a document that are followed by a block of text.
func programs(t *testing.T, file string) (all []documented) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?ms)^```(bash|python|js|java)\n(.*?)^```\n\n```text\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		all = append(all, documented{block[1], block[2], block[3]})
	}
	return all
}

// newestRedisPy is what scripts/install-test-programs calls the newest redis-py that is tested. The
// other one is Debian's.
const newestRedisPy = "redis-py-8.1.0"

// python returns a Python that has a redis-py. The first one may be of the user's own making,
// without what Debian's has.
func python(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"python3", "/usr/bin/python3"} {
		if command(t, program, "-c", "import redis").Run() == nil {
			return program
		}
	}
	t.Fatal("there is no Python with redis-py: run `make test`, which installs Debian's python3-redis")
	return ""
}

// tool returns what scripts/install-test-programs has put into bin/tools.
func tool(t *testing.T, name string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "bin", "tools", name))
	if err == nil {
		_, err = os.Stat(dir)
	}
	if err != nil {
		t.Fatalf("scripts/install-test-programs has not been run: %v", err)
	}
	return dir
}

// languagesVary is what differs from one run to the next: times.
var languagesVary = regexp.MustCompile(`\b(3[56]\d\d|359\d{4}|3600000|5\d{4}|60000)\b`)

// What docs/languages.md says that its programs print, they print: with the newest clients of Redis,
// and with older ones.
func TestLanguages(t *testing.T) {
	t.Parallel()
	all, java := programs(t, filepath.Join("..", "..", "docs", "languages.md")), javaPath(t)
	for _, c := range []struct {
		name, redisPy, ioredis, redis string
	}{
		{"newest", tool(t, newestRedisPy), "ioredis", "redis"},
		{"older", "", "ioredis5", "redis5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "--config", filepath.Join("..", "..", "examples", "resp", "headgate.yaml"), "--resp-listen", "127.0.0.1:0")
			elsewhere := strings.NewReplacer(
				"http://127.0.0.1:8080", s.base, "6380", respPort(t, s),
				// A machine that is busy with other tests may be slow.
				"timeout=1)", "timeout=30)", "timeout: 1000", "timeout: 30000", "timeout(1000)", "timeout(30000)", "commandTimeout: 1000", "commandTimeout: 30000", "ofSeconds(1)", "ofSeconds(30)",
			)
			// What programs in JavaScript import.
			dir := t.TempDir()
			modules := filepath.Join(dir, "node_modules")
			if err := os.Mkdir(modules, 0o700); err != nil {
				t.Fatal(err)
			}
			clients := filepath.Join("testdata", "clients", "node_modules")
			for name, at := range map[string]string{"headgate": nodeDir, "ioredis": filepath.Join(clients, c.ioredis), "redis": filepath.Join(clients, c.redis)} {
				full, err := filepath.Abs(filepath.FromSlash(at))
				if err == nil {
					err = os.Symlink(full, filepath.Join(modules, name))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			ran := make(map[string]int)
			runners := map[string][2]string{"bash": {"bash", "program.sh"}, "python": {python(t), "program.py"}, "js": {"node", "program.mjs"}, "java": {"java", "Program.java"}}
			for _, p := range all {
				file := filepath.Join(dir, runners[p.language][1])
				if err := os.WriteFile(file, []byte(elsewhere.Replace(p.code)), 0o600); err != nil {
					t.Fatal(err)
				}
				cmd := command(t, runners[p.language][0], file)
				cmd.Env = append(cmd.Environ(), "PYTHONPATH="+strings.Join([]string{pythonPath(t), c.redisPy}, string(filepath.ListSeparator)), "CLASSPATH="+java)
				out, err := cmd.CombinedOutput()
				got, want := languagesVary.ReplaceAllString(string(out), "N"), languagesVary.ReplaceAllString(p.prints, "N")
				if err != nil || got != want {
					t.Errorf("%v; the program\n%s\nprints\n%s\nthe document has\n%s", err, p.code, out, p.prints)
				}
				ran[p.language]++
			}
			if ran["bash"] < 3 || ran["python"] < 2 || ran["js"] < 3 || ran["java"] < 1 {
				t.Errorf("the document has %v programs", ran)
			}
		})
	}
}

// TestRedisPyPipeline: redis-py's pipelines, those with MULTI and EXEC and those without, answer
// command by command, and each limit holds.
func TestRedisPyPipeline(t *testing.T) {
	t.Parallel()
	s := serve(t, "--config", filepath.Join("..", "..", "examples", "resp", "headgate.yaml"), "--resp-listen", "127.0.0.1:0")
	file := filepath.Join(t.TempDir(), "pipeline.py")
	if err := os.WriteFile(file, []byte(`import redis
r = redis.Redis(port=`+respPort(t, s)+`, socket_timeout=60)
for name, transaction in (("multi", True), ("plain", False)):
    p = r.pipeline(transaction=transaction)
    for _ in range(3):
        p.execute_command("CL.THROTTLE", name, 1, 1, 3600)
    p.execute_command("HG.CHECK", "no such rule", "k")
    p.ping()
    answers = p.execute(raise_on_error=False)
    print(name, [a[0] for a in answers[:3]], type(answers[3]).__name__, answers[4])
    p.execute_command("HG.CHECK")
    try:
        print(name, p.execute())
    except redis.RedisError as e:
        print(name, type(e).__name__)
    print(name, r.execute_command("CL.THROTTLE", name, 1, 1, 3600)[0])
`), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := command(t, python(t), file).CombinedOutput()
	const want = `multi [0, 0, 1] ResponseError True
multi ResponseError
multi 1
plain [0, 0, 1] ResponseError True
plain ResponseError
plain 1
`
	if err != nil || string(out) != want {
		t.Errorf("%v; it prints\n%swant\n%s", err, out, want)
	}
}
