package spelling

import (
	"fmt"
	"os"
	"testing"

	"github.com/headgate/headgate/test/servers"
)

// headgate and caddy are programs that TestMain builds.
var headgate, caddy string

func TestMain(m *testing.M) { os.Exit(build(m)) }

func build(m *testing.M) int {
	var err error
	if headgate, err = servers.Headgate(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if caddy, err = servers.Build("caddy", "test/proxies/testdata/caddy", ".", "GOWORK=off"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
