package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTestingPage: what docs/testing.md shows is what examples/ci has, and that works: pytest,
// node:test and JUnit against one server whose clock is turned, started as the workflow starts it. The Go tests
// are run with those of the module of examples.
func TestTestingPage(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs(filepath.Join("..", "..", "examples", "ci"))
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	page, found := read(filepath.Join("..", "..", "docs", "testing.md")), 0
	for language, name := range map[string]string{"go": "login_test.go", "python": "test_login.py", "js": "login.test.mjs", "java": "LoginTest.java", "yaml": ""} {
		files := read(filepath.Join(dir, "limits.yml")) + read(filepath.Join(dir, "workflow.yml"))
		if name != "" {
			files = read(filepath.Join(dir, name))
		}
		for _, block := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
			if found++; !strings.Contains(files, block[1]) {
				t.Errorf("examples/ci does not have\n%s", block[1])
			}
		}
	}
	if found != 7 {
		t.Errorf("the page has %d blocks of code, want 7", found)
	}

	run := regexp.MustCompile(`docker run .* -v "\$PWD:/policy:ro" -e HEADGATE_ADMIN_TOKEN \S+ (serve .*)`).FindStringSubmatch(read(filepath.Join(dir, "workflow.yml")))
	if run == nil {
		t.Fatal("the workflow does not start a server")
	}
	token := regexp.MustCompile(`HEADGATE_ADMIN_TOKEN: (\S+)`).FindStringSubmatch(read(filepath.Join(dir, "workflow.yml")))[1]
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	s := begin(t, append(strings.Fields(strings.ReplaceAll(run[1], "/policy", dir)), "--listen", "127.0.0.1:0", "--admin-token-file", file)...)
	env := []string{"HEADGATE_URL=" + s.base, "HEADGATE_ADMIN_TOKEN=" + token, byteCode(t), "PYTHONPATH=" + pythonPath(t)}

	// What programs in JavaScript import.
	work := t.TempDir()
	full, err := filepath.Abs(nodeDir)
	if err == nil {
		err = os.Mkdir(filepath.Join(work, "node_modules"), 0o700)
	}
	if err == nil {
		err = os.Symlink(full, filepath.Join(work, "node_modules", "headgate"))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(work, "login.test.mjs"), []byte(read(filepath.Join(dir, "login.test.mjs"))), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", dir}, {"node", "--test", filepath.Join(work, "login.test.mjs")}} {
		cmd := command(t, args[0], args[1:]...)
		cmd.Env = append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "1 passed") && !strings.Contains(string(out), "# pass 1\n") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	runJUnit(t, javac(t, t.TempDir(), javaPath(t), []string{filepath.Join(dir, "LoginTest.java")}), javaTools, env)
}
