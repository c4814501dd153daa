package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pythonTools are what scripts/install-test-programs installs for the tests of client/python.
const pythonTools = "python-client-3"

// pythonPath is where programs find the package, and what its tests need.
func pythonPath(t *testing.T) string {
	t.Helper()
	src, err := filepath.Abs(filepath.Join("..", "..", "client", "python", "src"))
	if err != nil {
		t.Fatal(err)
	}
	return src + string(filepath.ListSeparator) + tool(t, pythonTools)
}

// byteCode has Python compile what it runs once for all runs, and keep that out of the repository.
func byteCode(t *testing.T) string {
	t.Helper()
	return "PYTHONPYCACHEPREFIX=" + filepath.Join(tool(t, pythonTools), ".pycache")
}

// runPython runs a module of Python in the directory of the package, to its end.
func runPython(t *testing.T, args ...string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "client", "python"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "python3", append([]string{"-m"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PYTHONPATH="+pythonPath(t), byteCode(t), "HEADGATE_PROGRAM="+binary)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("python3 -m %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestPythonPackage: the tests of the package for Python, against this program, and real releases of
// FastAPI, Starlette, Django and Flask on uvicorn and gunicorn.
func TestPythonPackage(t *testing.T) {
	t.Parallel()
	out := runPython(t, "pytest", "-q", "-p", "no:cacheprovider")
	if !strings.Contains(out, " passed in ") || strings.Contains(out, "skipped") {
		t.Error(out)
	}
}

// TestPythonTypes: its types are complete, and the linter is quiet.
func TestPythonTypes(t *testing.T) {
	t.Parallel()
	// What it knows of the libraries stays true for the next run.
	runPython(t, "mypy", "--cache-dir", filepath.Join(tool(t, pythonTools), ".mypy_cache"), "src")
	runPython(t, "ruff", "check", "--no-cache")
	runPython(t, "ruff", "format", "--check", "--no-cache")
}
