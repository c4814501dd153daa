package main

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// packaged is what the .deb and the .rpm install: the file of the repository by its place.
func packaged(t *testing.T) map[string]string {
	t.Helper()
	var config struct {
		Contents []struct {
			Src string `json:"src"`
			Dst string `json:"dst"`
		} `json:"contents"`
	}
	if err := yaml.Unmarshal(read(t, "../deploy/package/nfpm.yaml"), &config); err != nil {
		t.Fatal(err)
	}
	top, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for _, c := range config.Contents {
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

// The packages of a platform are made of the tree as it is, and leave alone what make build made.
func TestPackages(t *testing.T) {
	t.Parallel()
	nfpm, err := filepath.Glob("../bin/tools/nfpm-*")
	if err != nil || len(nfpm) != 1 {
		t.Fatalf("nfpm is not installed: scripts/install-test-programs does it (%q, %v)", nfpm, err)
	}
	tool, err := filepath.Abs(nfpm[0])
	if err != nil {
		t.Fatal(err)
	}
	backend, err := filepath.Abs("../bin/tools/python-client-3")
	if err != nil {
		t.Fatal(err)
	}
	r, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before, _ := os.Stat(filepath.Join(r.Top, "bin", "headgate")) // It may not be there.
	dir, version := filepath.Join(t.TempDir(), "packages"), strings.TrimPrefix(r.Version, "v")+"-snapshot"
	// A program of its own has no race detector, under which compressing takes many times as long. One
	// module of Java is made as all are.
	pack := exec.CommandContext(t.Context(), "go", "run", ".", "packages", "-snapshot", "-nfpm", tool, "-flit", backend,
		"-maven", "-pl !headgate-servlet,!headgate-spring-boot-starter -Dmaven.javadoc.skip=true", "-into", dir, "linux/"+runtime.GOARCH)
	if out, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if after, _ := os.Stat(filepath.Join(r.Top, "bin", "headgate")); before != nil && !after.ModTime().Equal(before.ModTime()) {
		t.Error("bin/headgate is another one")
	}
	name := "headgate_" + version + "_linux_" + runtime.GOARCH
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = dir
	if out, err := check.CombinedOutput(); err != nil || strings.Count(string(out), ": OK") != 11 {
		t.Errorf("the checksums: %v\n%s", err, out)
	}
	for file, licence := range map[string]string{
		"headgate-0.1.0-py3-none-any.whl": "headgate-0.1.0.dist-info/licenses/LICENSE",
		"headgate-0.1.0.tar.gz":           "headgate-0.1.0/LICENSE",
		"headgate-0.1.0.tgz":              "package/LICENSE",
		"headgate-0.1.0.jar":              "META-INF/LICENSE",
		"headgate-0.1.0-sources.jar":      "META-INF/LICENSE",
	} {
		list := []string{"tar", "-tzf"}
		if extension := filepath.Ext(file); extension == ".whl" || extension == ".jar" {
			list = []string{"python3", "-m", "zipfile", "-l"}
		}
		if out, err := exec.CommandContext(t.Context(), list[0], append(list[1:], filepath.Join(dir, file))...).CombinedOutput(); err != nil || !strings.Contains(string(out), licence) {
			t.Errorf("%s has no %s: %v\n%s", file, licence, err, out)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "tar", "-tzf", filepath.Join(dir, name+".tar.gz")).CombinedOutput(); err != nil || string(out) != "LICENSE\nNOTICE\nREADME.md\nCHANGELOG.md\nheadgate\n" {
		t.Errorf("the archive: %v\n%s", err, out)
	}
	unpacked := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "dpkg-deb", "--raw-extract", filepath.Join(dir, name+".deb"), unpacked).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !bytes.Contains(read(t, filepath.Join(unpacked, "DEBIAN", "postinst")), read(t, "../deploy/package/postinstall.sh")) {
		t.Error("the package has another script to run after its installation")
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(unpacked, "usr", "bin", "headgate"), "version").CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("v"+version)) {
		t.Errorf("the installed program is %s, %v", out, err)
	}
	for _, file := range []string{".rpm", ".sbom.json"} {
		if stat, err := os.Stat(filepath.Join(dir, name+file)); err != nil || stat.Size() == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// What the unit's environment file offers in comments are settings that the program knows.
func TestPackagedSettings(t *testing.T) {
	t.Parallel()
	manual := ""
	for _, command := range []string{"serve", "gateway"} {
		help, err := exec.CommandContext(t.Context(), program, command, "--help").Output()
		if err != nil {
			t.Fatal(err)
		}
		manual += string(help)
	}
	settings := regexp.MustCompile(`(?m)^#?(HEADGATE_[A-Z_]+)=`).FindAllStringSubmatch(string(read(t, "../deploy/package/environment")), -1)
	for _, found := range settings {
		// The unit alone reads the command.
		if found[1] != "HEADGATE_COMMAND" && !strings.Contains(manual, "$"+found[1]) {
			t.Errorf("no command knows %s", found[1])
		}
	}
	if len(settings) < 5 {
		t.Errorf("the file has %q", settings)
	}
}
