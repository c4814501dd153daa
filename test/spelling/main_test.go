package spelling

import (
	"fmt"
	"os"
	"testing"

	"github.com/headgate/headgate/test/servers"
)

// headgate, caddy and routers are programs that TestMain builds.
var headgate, caddy, routers string

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
	if routers, err = servers.Build("routers", "test/spelling/testdata/go", ".", "GOWORK=off"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
