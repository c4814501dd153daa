package servers

import (
	"os/exec"
	"path/filepath"
)

// tools is where the programs are that the tests of the project have built, seen from the
// directory bench.
const tools = "../bin/tools"

// Find finds a program in the PATH, or among the tools that scripts/install-test-programs builds;
// "" if it is in neither.
func Find(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	found, err := filepath.Glob(filepath.Join(tools, name+"-[v0-9]*"))
	if err != nil || len(found) == 0 {
		return ""
	}
	path, err := filepath.Abs(found[len(found)-1])
	if err != nil {
		return ""
	}
	return path
}
