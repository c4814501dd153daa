package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// stranger is somebody who has Go and a module proxy with our modules, and no clone of the
// repository.
type stranger struct {
	release *Release
	env     []string
	dir     string
}

// market is what strangers have in common: a proxy with the release, and a module cache that
// fills up from it. Packing the modules and unpacking what they require takes half a minute of a
// processor and hundreds of megabytes.
type market struct {
	release *Release
	env     []string
}

var openMarket = sync.OnceValues(func() (*market, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	r, err := open(ctx)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(program)
	proxy := filepath.Join(dir, "proxy")
	// A program of its own has no race detector, under which packing takes five times as long.
	if out, err := exec.CommandContext(ctx, "go", "run", ".", "proxy", proxy).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("release proxy: %w\n%s", err, out)
	}
	env, err := Environment(ctx, proxy, filepath.Join(dir, "cache"))
	return &market{r, env}, err
})

func newStranger(t *testing.T) *stranger {
	t.Helper()
	m, err := openMarket()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// -w leaves out debugging data, which is half of the linker's work.
	return &stranger{m.release, append(slices.Clone(m.env), "GOBIN="+dir, "GOFLAGS="+goFlags+" -ldflags=-w"), dir}
}

// run is a go command, which must succeed.
func (s *stranger) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = s.dir, s.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// The library is fetched from a proxy into a new module, and README's ten lines run there.
func TestLibrary(t *testing.T) {
	t.Parallel()
	s := newStranger(t)
	readme, err := os.ReadFile(filepath.Join(s.release.Top, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(readme)
	if lines == nil {
		t.Fatal("README.md has no Go code")
	}
	program := `package main

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

func try(ctx context.Context) error {
` + string(lines[1]) + `	return nil
}

func main() { fmt.Println(time.Minute, try(context.Background())) }
`
	if err := os.WriteFile(filepath.Join(s.dir, "main.go"), []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	s.run(t, "mod", "init", "example.com/try")
	s.run(t, "get", prefix+"@"+s.release.Version, prefix+"/store/redis@"+s.release.Version)
	if out := s.run(t, "run", "."); out != "1m0s <nil>\n" {
		t.Errorf("README's lines printed %q", out)
	}
}

// A module elsewhere builds against a clone by the clone's workspace, as docs/install.md says: a replace
// of one module leaves out those that it needs.
func TestClone(t *testing.T) {
	t.Parallel()
	top, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	s := &stranger{dir: t.TempDir()}
	work := read(t, "../go.work")
	// A copy beside the original would be in the repository. So the names of directories are made whole.
	whole := regexp.MustCompile(`(?m)(^\t|=> )\.`).ReplaceAll(work, []byte("${1}"+top+"/."))
	for name, text := range map[string]string{
		"mine.work": string(whole),
		"main.go":   "package main\n\nimport \"" + prefix + "/client\"\n\nfunc main() { println(client.New != nil) }\n",
	} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s.env = append(os.Environ(), "GOWORK="+filepath.Join(s.dir, "mine.work"), "GOFLAGS=-buildvcs=false")
	s.run(t, "mod", "init", "example.com/mine")
	s.run(t, "work", "use", ".")
	if out := s.run(t, "run", "."); out != "true\n" {
		t.Errorf("it printed %q", out)
	}
}

// The program is installed from a proxy with one command, knows its version, and serves.
func TestProgram(t *testing.T) {
	t.Parallel()
	s := newStranger(t)
	s.run(t, "install", prefix+"/server/cmd/headgate@"+s.release.Version)
	program := filepath.Join(s.dir, "headgate")
	out, err := exec.CommandContext(t.Context(), program, "version").CombinedOutput()
	if want := "headgate " + s.release.Version + " ("; err != nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("headgate version: %q, %v; want %q...", out, err, want)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	serve := exec.CommandContext(ctx, program, "serve", "--listen", "127.0.0.1:0")
	serve.Dir = s.dir
	log, err := serve.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = serve.Wait() }()
	var said bytes.Buffer
	for lines := bufio.NewScanner(log); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if _, rest, ok := strings.Cut(lines.Text(), "msg=serving address="); ok {
			address := strings.Fields(rest)[0]
			out, err := exec.CommandContext(ctx, program, "check", "auth.createToken", "k", "--server", address).CombinedOutput()
			if err != nil || !bytes.Contains(out, []byte("allowed")) {
				t.Errorf("headgate check: %v\n%s", err, out)
			}
			return
		}
	}
	t.Fatalf("headgate serve ended:\n%s", said.String())
}

// What a stranger could not import is refused before a tag is there.
func TestCheck(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ gomod, want string }{
		"good":    {"module " + prefix + "/x\nrequire " + prefix + " v0.1.0\n", ""},
		"replace": {"module " + prefix + "/x\nreplace " + prefix + " => ../\n", "x/go.mod:2: replaces " + prefix},
		"version": {"module " + prefix + "/x\nrequire " + prefix + "/api v0.0.0\n", "x/go.mod:2: requires " + prefix + "/api v0.0.0, must be v0.1.0"},
		"syntax":  {"module\n", "x/go.mod:1"},
	} {
		m := &Module{path: prefix + "/x", dir: "x", gomod: []byte(c.gomod)}
		err := m.check("v0.1.0")
		if (err != nil) != (c.want != "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestTags(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run(t.Context(), []string{"tags"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, tag := range []string{" v0.1.0\n", " store/redis/v0.1.0\n", "git push --atomic origin v0.1.0 api/v0.1.0 "} {
		if !strings.Contains(out.String(), tag) {
			t.Errorf("%q is missing in\n%s", tag, out.String())
		}
	}
	for _, tag := range []string{"test/v", "bench/", "examples/v", "release/v"} {
		if strings.Contains(out.String(), tag) {
			t.Errorf("%q is a tag in\n%s", tag, out.String())
		}
	}
	for _, args := range [][]string{nil, {"tag"}, {"tags", "x"}, {"proxy"}} {
		if err := run(t.Context(), args, &out); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v, want %v", args, err, errUsage)
		}
	}
}
