package docs

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// commands is the page of the program's commands and flags, which the program writes itself.
func commands(root string) ([]byte, error) {
	cmd := exec.Command("go", "run", "-buildvcs=false", "./cmd/headgate", "reference")
	cmd.Dir = filepath.Join(root, "server")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	page, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("headgate reference: %w\n%s", err, stderr.Bytes())
	}
	return narrow(page), nil
}

// narrow wraps the paragraphs of a page, but neither tables nor code.
func narrow(page []byte) []byte {
	var b strings.Builder
	code := false
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSuffix(line, "\n")
		fence := strings.HasPrefix(line, "```")
		if !code && !fence && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "#") {
			if item, is := strings.CutPrefix(line, "- "); is {
				line = "- " + strings.ReplaceAll(Wrapped(item, 98), "\n", "\n  ")
			} else {
				line = Wrapped(line, 100)
			}
		}
		b.WriteString(line + "\n")
		code = code != fence
	}
	return []byte(b.String())
}
