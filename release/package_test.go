package main

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// packaged is what the .deb and the .rpm install: the file of the repository by its place.
func packaged(t *testing.T) map[string]string {
	t.Helper()
	var config struct {
		NFPMs []struct {
			Contents []struct {
				Src string `json:"src"`
				Dst string `json:"dst"`
			} `json:"contents"`
		} `json:"nfpms"`
	}
	if err := yaml.Unmarshal(read(t, "../.goreleaser.yaml"), &config); err != nil {
		t.Fatal(err)
	}
	top, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for _, c := range config.NFPMs[0].Contents {
		files[c.Dst] = filepath.Join(top, filepath.FromSlash(c.Src))
	}
	return files
}

// unit is what systemd would run after the installation: the command and its environment, with
// the packaged file in place of each name of an installed one. More lines of the environment file
// may be given.
func unit(t *testing.T, more ...string) (args, env []string) {
	t.Helper()
	files := packaged(t)
	text := string(read(t, files["/usr/lib/systemd/system/headgate.service"]))
	values := make(map[string]string)
	set := func(assignment string) {
		name, value, _ := strings.Cut(assignment, "=")
		if file, ok := files[value]; ok {
			value = file
		}
		values[name] = value
	}
	for _, found := range regexp.MustCompile(`(?m)^(Environment|EnvironmentFile)=-?(.*)$`).FindAllStringSubmatch(text, -1) {
		if found[1] == "Environment" {
			set(found[2])
			continue
		}
		for line := range strings.Lines(string(read(t, files[found[2]]))) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				set(line)
			}
		}
	}
	for _, line := range more {
		set(line)
	}
	command := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(text)
	if command == nil {
		t.Fatalf("the unit starts nothing:\n%s", text)
	}
	args = strings.Fields(os.Expand(command[1], func(name string) string { return values[name] }))
	for name, value := range values {
		env = append(env, name+"="+value)
	}
	return args, env
}

// The installed service starts by its unit with the packaged settings and policy, says that it is
// ready, and limits a login.
func TestPackagedService(t *testing.T) {
	t.Parallel()
	args, env := unit(t)
	if args[0] != "/usr/bin/headgate" || strings.Join(args[1:], " ") != "serve" {
		t.Fatalf("the unit starts %q", args)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	serve := exec.CommandContext(ctx, program, args[1:]...)
	// The test must not meet a service that runs on this machine already.
	serve.Env = append(env, "HEADGATE_LISTEN=127.0.0.1:0")
	log, err := serve.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = serve.Wait() }()
	address, said := "", new(bytes.Buffer)
	for lines := bufio.NewScanner(log); address == "" && lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if _, rest, ok := strings.Cut(lines.Text(), "msg=serving address="); ok {
			address = strings.Fields(rest)[0]
		}
	}
	if address == "" {
		t.Fatalf("the service ended:\n%s", said)
	}
	ask := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Env = append(os.Environ(), "HEADGATE_SERVER="+address)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := ask("health"); err != nil || !strings.Contains(out, "ready") {
		t.Errorf("headgate health: %v\n%s", err, out)
	}
	if out, err := ask("check", "login-user", "ada", "--cost", "5"); err != nil || !strings.Contains(out, "allowed") {
		t.Errorf("five attempts: %v\n%s", err, out)
	}
	if out, err := ask("check", "login-user", "ada"); err == nil || !strings.Contains(out, "5 per 15m") {
		t.Errorf("the sixth attempt: %v\n%s", err, out)
	}
}

// What the unit's environment file offers in comments are settings that the program knows.
func TestPackagedSettings(t *testing.T) {
	t.Parallel()
	manual, err := exec.CommandContext(t.Context(), program, "man").Output()
	if err != nil {
		t.Fatal(err)
	}
	settings := regexp.MustCompile(`(?m)^#?(HEADGATE_[A-Z_]+)=`).FindAllStringSubmatch(string(read(t, "../deploy/package/environment")), -1)
	for _, found := range settings {
		// The unit alone reads the command.
		if found[1] != "HEADGATE_COMMAND" && !strings.Contains(string(manual), "($"+found[1]+")") {
			t.Errorf("the manual page has no %s", found[1])
		}
	}
	if len(settings) < 5 {
		t.Errorf("the file has %q", settings)
	}
}
