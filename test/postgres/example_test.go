package postgres_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/test/servers"
)

// TestExample: of many logins within a minute, by processes that share nothing but the
// server, 20 are let in at most, and the others are told until when.
func TestExample(t *testing.T) {
	s := servers.StartPostgres(t)
	program := filepath.Join(t.TempDir(), "example")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir = "../../examples/postgres"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	welcome, denied := 0, 0
	for range 24 {
		switch out, err := exec.CommandContext(servers.Bounded(t), program, s.URL(), "user42").CombinedOutput(); {
		case err == nil && string(out) == "welcome\n":
			welcome++
		case err != nil && strings.HasPrefix(string(out), "too many logins; try again in "):
			denied++
		default:
			t.Fatalf("%v: %s", err, out)
		}
	}
	if welcome < 5 || welcome > 20 || denied != 24-welcome {
		t.Errorf("%d were let in and %d denied, want 5 to 20 and all others", welcome, denied)
	}
}
