package app

import (
	"strings"
	"testing"
)

// A clock that is turned by hand is for the memory store, and for an admin.
func TestManualClockNeeds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		settings Settings
		want     []string
	}{
		{Settings{ManualClock: true, AdminToken: "0123456789abcdef"}, nil},
		{Settings{ManualClock: true}, []string{"needs an admin token"}},
		{Settings{ManualClock: true, Store: "redis://127.0.0.1:1"}, []string{"is for the memory store", "needs an admin token"}},
	} {
		_, err := tt.settings.withDefaults()
		if (err == nil) != (tt.want == nil) {
			t.Errorf("%+v: %v", tt.settings, err)
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not say that it %s", err, want)
			}
		}
	}
}
