package partner

import (
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// free is an address that nobody serves on. Its port is below those that systems hand out, which
// anybody's connection may have taken before the program serves there.
func free(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(10_000+rand.IntN(10_000))))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("none of 100 ports is free")
	return ""
}

// TestRun: the fleet with a limit gets all its answers and is never blocked; the one without
// is.
func TestRun(t *testing.T) {
	program := filepath.Join(t.TempDir(), "headgate")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", program, "./cmd/headgate")
	build.Dir = filepath.Join("..", "..", "server")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := exec.CommandContext(t.Context(), "./run")
	run.Env = append(run.Environ(), "PROGRAM="+program, "PARTNER="+free(t), "HTTP="+free(t), "GRPC="+free(t))
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tallies := regexp.MustCompile(`The partner: served (\d+), at most (\d+) in 2s, blocked: (true|false)`).FindAllSubmatch(out, -1)
	if len(tallies) != 2 {
		t.Fatalf("%s", out)
	}
	number := func(text []byte) int {
		n, err := strconv.Atoi(string(text))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if with := tallies[0]; number(with[1]) != 120 || number(with[2]) > 60 || string(with[3]) != "false" {
		t.Errorf("with a limit: %s", with[0])
	}
	if without := tallies[1]; number(without[1]) > 60 || string(without[3]) != "true" {
		t.Errorf("without a limit: %s", without[0])
	}
}
