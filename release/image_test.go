package main

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The image's last stage is built with the program of the working tree in place of the first
// stage, which needs a base image from a registry. The program serves in a container of it, and
// answers its own health check.
func TestImage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := filepath.Join(dir, "stage", "out")
	certificates := filepath.Join(out, "etc", "ssl", "certs")
	if err := os.MkdirAll(certificates, 0o755); err != nil {
		t.Fatal(err)
	}
	copyFile(t, "/etc/ssl/certs/ca-certificates.crt", filepath.Join(certificates, "ca-certificates.crt"), 0o644)
	copyFile(t, program, filepath.Join(out, "headgate"), 0o755)
	context := filepath.Join(dir, "context")
	if err := os.Mkdir(context, 0o755); err != nil {
		t.Fatal(err)
	}
	buildah := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "buildah", append([]string{
			"--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run"), "--storage-driver", "vfs",
		}, args...)...)
		cmd.Env = append(os.Environ(), "BUILDAH_ISOLATION=chroot")
		return cmd
	}
	must := func(args ...string) string {
		t.Helper()
		said, err := buildah(args...).CombinedOutput()
		if err != nil {
			t.Fatalf("buildah %q: %v\n%s", args, err, said)
		}
		return strings.TrimSpace(string(said))
	}
	must("bud", "--format", "docker", "--build-context", "build="+filepath.Join(dir, "stage"), "-f", "../Dockerfile", "-t", "headgate", context)
	t.Cleanup(func() {
		// The test's context has ended, and so have the containers.
		clean := exec.Command("buildah", buildah("rm", "--all").Args[1:]...)
		if said, err := clean.CombinedOutput(); err != nil {
			t.Errorf("buildah rm: %v\n%s", err, said)
		}
	})
	image := must("inspect", "--type", "image", "--format", "{{.Docker.Config.User}} {{.Docker.Config.Healthcheck.Test}}", "headgate")
	if want := "65532:65532 [CMD /headgate health]"; image != want {
		t.Errorf("the image has %q, want %q", image, want)
	}

	container := must("from", "headgate")
	address := freeAddress(t)
	serve := buildah("run", "--user", "65532:65532", "--env", "HEADGATE_LISTEN="+address, container, "--", "/headgate", "serve")
	serve.Cancel = func() error { return serve.Process.Signal(syscall.SIGTERM) }
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	serve.Stdout, serve.Stderr = log, log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = serve.Wait() // The log says why.
	}()
	defer func() {
		_ = serve.Process.Signal(syscall.SIGTERM)
		<-ended
	}()

	health := func() ([]byte, error) {
		return buildah("run", "--env", "HEADGATE_SERVER=http://"+address, container, "--", "/headgate", "health").CombinedOutput()
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		said, err := health()
		if err == nil && strings.Contains(string(said), "ready") {
			return
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("the health check: %v\n%s\nthe server:\n%s", err, said, text)
		}
	}
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	source, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, mode)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(target, source); err != nil {
		t.Fatal(err)
	}
	if err := target.Close(); err != nil {
		t.Fatal(err)
	}
}

// freeAddress is an address of the loopback interface that nobody listened on just now. Its port
// lies below those that systems hand out, and below those of package servers: nobody else is given
// it before the program that is told it listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(10000+rand.IntN(10000)))
		if listener, err := net.Listen("tcp", address); err == nil {
			listener.Close()
			return address
		}
	}
	t.Fatal("none of 100 ports is free")
	return ""
}
