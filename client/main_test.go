package client

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(patient{m}) }

// patient waits for what ends a little after the tests, such as a connection whose
// server lets the client read the last answer: goleak itself waits for half a second.
type patient struct{ *testing.M }

func (p patient) Run() int {
	code := p.M.Run()
	for range 40 {
		if goleak.Find() == nil {
			break
		}
	}
	return code
}
