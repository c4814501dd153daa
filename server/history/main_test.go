package history_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/leakwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(leakwait.After(m, goleak.Find)) }
