package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// The unit is what systemd takes, and gives the service little to do harm with.
func TestUnit(t *testing.T) {
	t.Parallel()
	// Only the program's place differs from what the package installs.
	unit := bytes.ReplaceAll(read(t, "../deploy/package/headgate.service"), []byte("/usr/bin/headgate"), []byte(program))
	file := filepath.Join(t.TempDir(), "headgate.service")
	if err := os.WriteFile(file, unit, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", file).CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=yes", file).CombinedOutput()
	exposure := regexp.MustCompile(`exposure level for headgate.service: ([0-9.]+)`).FindSubmatch(out)
	if err != nil || exposure == nil {
		t.Fatalf("systemd-analyze security: %v\n%s", err, out)
	}
	// systemd calls up to 2.0 "OK", its best mark but one.
	if level, err := strconv.ParseFloat(string(exposure[1]), 64); err != nil || level > 2 {
		t.Errorf("the exposure level is %s, want at most 2.0\n%s", exposure[1], out)
	}
}
