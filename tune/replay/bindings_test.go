package replay

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/policy"
)

// TestBindings: a remembered binding is what the policy says at that time, also when places are
// fought for, values are long, and things end.
func TestBindings(t *testing.T) {
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	set, err := config.Parse("test.yaml", []byte(`
deny:
  - { name: gone, match: { ip: 192.0.2.0/28 }, until: 2026-11-22T01:00:00Z }
allow:
  - { name: friend, match: { user: anna }, until: 2026-11-22T02:00:00Z }
rules:
  - name: client
    per: [ip/24]
    limits: [10 per 1s]
    overrides:
      - { match: { user: bert }, limits: [20 per 1s], until: 2026-11-22T03:00:00Z }
  - { name: user, per: [user], limits: [5 per 1m], give_back_on: [404] }
  - { name: path, match: { path: /a* }, per: [path, user], limits: [7 per 1m], cost: { entry: size, per: 10, max: 50 } }
`), policy.Clock(func() time.Time { return now }))
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	b := newBindings(set)
	buf := make([]byte, 0, 4096)
	count := race.Fewer(200_000)
	for n := range count {
		if n%(count/4) == count/4-1 {
			now = now.Add(time.Hour)
		}
		var d policy.Descriptor
		// The values are overwritten by those of the next request, as those of a log are.
		buf = buf[:0]
		add := func(name, value string) {
			if rng.IntN(8) > 0 {
				buf = append(buf, value...)
				d = append(d, policy.Entry{Name: name, Value: unsafe.String(&buf[len(buf)-len(value)], len(value))})
			}
		}
		add("ip", fmt.Sprintf("192.0.%d.%d", rng.IntN(4), rng.IntN(200)))
		add("user", []string{"anna", "bert", "carl", "192.0.2.1"}[rng.IntN(4)])
		add("path", "/"+strings.Repeat("a", 1+rng.IntN(3)*400))
		add("size", []string{"1", "7", "100", "many"}[rng.IntN(4)])
		got := b.of(d, nil)
		want, err := set.Decide(d, 1, nil)
		if got.refused != (err != nil) || got.denied != want.Denied || len(got.checks) != len(want.Checks) || got.awaits != set.Awaits(want.Checks) {
			t.Fatalf("request %d, %v: got %+v, want %+v, %v", n, d, got, want, err)
		}
		for i := range want.Checks {
			if !reflect.DeepEqual(got.checks[i], want.Checks[i]) {
				t.Fatalf("request %d, %v: got %+v, want %+v", n, d, got.checks[i], want.Checks[i])
			}
		}
	}
}
