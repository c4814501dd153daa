package admission

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate"
)

// TestOwed: what nobody settled in time is charged in full, but for what
// was estimated too much.
func TestOwed(t *testing.T) {
	r := &headgate.Reservation{Checks: []headgate.Check{
		{Key: "more", Cost: 10, At: 7},
		{Key: "less", Cost: 10, At: 7},
		{Key: "given back", Cost: 10, At: 7, GiveBack: true},
		{Key: "given back, and free", Cost: 10, At: 7, GiveBack: true},
	}}
	want := []headgate.Check{{Key: "more", Cost: 2}, {Key: "given back", Cost: 8, GiveBack: true}}
	if got := owed(r, []int64{12, 8, 8, 0}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v is missing, want %+v", got, want)
	}
}
