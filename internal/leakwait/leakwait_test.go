package leakwait

import (
	"errors"
	"testing"
)

type ends int // a run of tests that ends with this exit code

func (e ends) Run() int { return int(e) }

func TestAfter(t *testing.T) {
	for _, tt := range []struct{ leaks, asked int }{
		{0, 1},
		{2, 3}, // the goroutine ends while it is waited for
		{attempts + 1, attempts},
	} {
		asked := 0
		find := func(...string) error {
			if asked++; asked <= tt.leaks {
				return errors.New("a goroutine is left")
			}
			return nil
		}
		if code := After(ends(7), find).Run(); code != 7 || asked != tt.asked {
			t.Errorf("found %d times: exit code %d after %d looks, want 7 after %d", tt.leaks, code, asked, tt.asked)
		}
	}
}
