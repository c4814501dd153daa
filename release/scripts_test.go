package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What an administrator did to the service stays at an upgrade: only the first installation enables
// and starts it. In place of systemctl and what makes users, programs note how they are called.
func TestUpgradeKeepsTheServiceAsItIs(t *testing.T) {
	t.Parallel()
	script := string(read(t, "../deploy/package/postinstall.sh"))
	running := t.TempDir()
	script = strings.ReplaceAll(script, "/run/systemd/system", running)
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"first .deb", []string{"configure", ""}, "enable --now headgate.service"},
		{"next .deb", []string{"configure", "0.1.0"}, "try-restart headgate.service"},
		{"first .rpm", []string{"1"}, "enable --now headgate.service"},
		{"next .rpm", []string{"2"}, "try-restart headgate.service"},
	} {
		dir := t.TempDir()
		log := filepath.Join(dir, "log")
		for _, name := range []string{"systemctl", "getent", "chgrp"} {
			noted := "#!/bin/sh\n"
			if name == "systemctl" {
				noted += "echo \"$*\" >>" + log + "\n"
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(noted), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		run := exec.CommandContext(t.Context(), "sh", append([]string{"-c", script, "postinst"}, tt.args...)...)
		run.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		if out, err := run.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", tt.name, err, out)
		}
		if got := string(read(t, log)); got != "daemon-reload\n"+tt.want+"\n" {
			t.Errorf("%s: systemctl was called with\n%swant daemon-reload and %s", tt.name, got, tt.want)
		}
	}
}
