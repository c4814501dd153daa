package redis

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis/internal/target"
)

func TestSettings(t *testing.T) {
	tests := []struct {
		name  string
		set   settings
		queue int64
		want  []string
	}{
		{"two mistakes", settings{Settings: target.Settings{Prefix: strings.Repeat("p", 65)}, timeout: -time.Second}, 0, []string{"65 bytes", "-1s"}},
		{"braces", settings{Settings: target.Settings{Prefix: "a{b}:"}, timeout: 1}, 1024, []string{`'{' at byte 1`}},
		{"braces in the part", settings{part: "{x}", timeout: 1}, 1024, []string{"the part has 3 bytes or braces"}},
		{"no place in the queue", settings{timeout: 1, Settings: target.Settings{MaxPending: 1024}}, 1024, []string{"1024 places"}},
		{"no calls at all", settings{timeout: 1, Settings: target.Settings{MaxPending: -1}}, 1024, []string{"max pending is -1"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := test.set.check(test.queue)
			if !errors.Is(err, headgate.ErrInvalid) {
				t.Fatalf("got %v, want ErrInvalid", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want it to say %q", err, want)
				}
			}
		})
	}
	part := newSettings(Prefix("a:"), Part("b"))
	if got := part.fullPrefix(); got != "a-b:" {
		t.Errorf("the prefix of a part is %q", got)
	}
	set := newSettings()
	if err := set.check(1 << 14); err != nil || set.MaxPending != 15360 || set.Prefix != "hg:" || set.timeout != 500*time.Millisecond || set.CombineFrom != 8 {
		t.Errorf("the defaults are %+v, %v", set, err)
	}
	if set := newSettings(Combining(-1)); set.CombineFrom != 0 {
		t.Errorf("decisions share calls from %d on, want never", set.CombineFrom)
	}
}
