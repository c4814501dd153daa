package storetest

import (
	"testing"

	"github.com/headgate/headgate"
)

// Maker x.
type Maker func(t testing.TB, clock func() int64) headgate.Store
