package httplimittest

import (
	"context"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

// Server is a server under test.
type Server struct {
	// URL is its address, such as "http://127.0.0.1:20000".
	URL string
	// Item and Echo are what the entry "route" must be for requests to GET
	// /items/{id} and POST /echo: the patterns as the framework writes them, such
	// as "GET /items/:id". The third route is GET /events, and HEAD /items/{id} is
	// served too. [Site] says what each of them answers.
	Item, Echo string
}

// Maker makes a server whose requests meet first the limits of the options and
// then the site. It ends with the test. The error is that of the adapter.
type Maker func(t *testing.T, site *Site, store headgate.Store, opts ...httplimit.Option) (Server, error)

// UserHeader is the header that the server signs users in by.
const UserHeader = "Test-User"

// UserKey is what the user is kept under where keys are strings. A context of
// the standard library has [ContextKey] instead.
const UserKey = "user"

// ContextKey is UserKey as a context of the standard library wants it.
type ContextKey struct{}

// user is a function for [httplimit.ByUser].
func user(ctx context.Context) string {
	if s, ok := ctx.Value(ContextKey{}).(string); ok {
		return s
	}
	s, _ := ctx.Value(UserKey).(string)
	return s
}

// Run is the suite. Each of its cases is a subtest with servers of its own.
func Run(t *testing.T, mk Maker) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Maker)
	}{
		{"headers and bodies of every dialect", answers},
		{"a denial never reaches the handler", denialStops},
		{"an answer to HEAD has no body", headHasNoBody},
		{"an answer of the program's own", ownAnswer},
		{"costs", costs},
		{"charged by how a request ends", charged},
		{"settled at what a request has cost", settled},
		{"policy, deny list and allow list", lists},
		{"all limits admit or none is charged", allOrNothing},
		{"what is in progress is bounded", busyBounds},
		{"a request waits for its permit", busyWaits},
		{"a denial gives its permits back", busyRollsBack},
		{"permits by tariff, and in shadow", busyByTariff},
		{"identities", identities},
		{"requests without an identity", missing},
		{"forwarded addresses", forwarded},
		{"secrets are hashed", secrets},
		{"facts", facts},
		{"routes", routes},
		{"the store does not answer", storeErrors},
		{"rules say what becomes of requests then", ruleErrors},
		{"hooks", hooks},
		{"mistakes in the options", mistakes},
		{"a delay holds the request", delays},
		{"bodies pass in both directions", bodies},
		{"the body of a denied request is no request", bodyIsNoRequest},
		{"answers are streamed", streams},
		{"nothing is left for the next request", nothingIsLeft},
		{"clients at once share a limit exactly", sharedExactly},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, mk)
		})
	}
}
