package spelling

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// headgate and caddy are programs that TestMain builds.
var headgate, caddy string

func TestMain(m *testing.M) { os.Exit(build(m)) }

func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "headgate-spelling")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	headgate, caddy = filepath.Join(dir, "headgate"), filepath.Join(dir, "caddy")
	for _, p := range []struct{ to, dir, pkg, env string }{
		{headgate, "../../server", "./cmd/headgate", ""},
		{caddy, "../proxies/testdata/caddy", ".", "GOWORK=off"},
	} {
		cmd := exec.Command("go", "build", "-buildvcs=false", "-o", p.to, p.pkg)
		cmd.Dir = filepath.FromSlash(p.dir)
		if p.env != "" {
			cmd.Env = append(os.Environ(), p.env)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build %s in %s: %v\n%s", p.pkg, p.dir, err, out)
			return 1
		}
	}
	return m.Run()
}
