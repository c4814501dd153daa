package resp

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/leakwait"
)

// onStandby has connections wait for commands on standby, wherever no decision waits.
var onStandby bool

// twice runs all tests with connections that have a goroutine each, and with connections on
// standby.
type twice struct{ *testing.M }

func (m twice) Run() int {
	if code := m.M.Run(); code != 0 {
		return code
	}
	onStandby = true
	return m.M.Run()
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(leakwait.After(twice{m}, goleak.Find)) }
