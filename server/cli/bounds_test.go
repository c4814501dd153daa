package cli

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/server/candidate"
)

// The report shows bounds on what is in progress side by side, and nothing where none differ.
func TestPrintBounds(t *testing.T) {
	t.Parallel()
	var none, some strings.Builder
	printBounds(&none, nil)
	if none.Len() > 0 {
		t.Errorf("without differences it prints %q", &none)
	}
	printBounds(&some, []candidate.Rebound{
		{Rule: "reports", Live: &candidate.Bound{Limit: 3, Most: 3}, Candidate: &candidate.Bound{Limit: 2, Most: 5, WaitMS: 5000, Queue: 10, Shared: true, TTLMS: 30_000}},
		{Rule: "exports", Candidate: &candidate.Bound{Most: 9}},
	})
	const want = `
IN PROGRESS  IN FORCE  CANDIDATE
reports      3         2, up to 5 for some, shared for 30s, 10 wait for 5s
exports      no bound  up to 9 for some
these bounds were not tried: nobody knows how long a request is in progress that was only asked about
`
	if some.String() != want {
		t.Errorf("it prints\n%s\nwant\n%s", &some, want)
	}
}
