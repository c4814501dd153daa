package servers_test

import (
	"testing"

	"github.com/headgate/headgate/test/servers"
)

// A test runs for every kind of server, and asks the server itself what the
// client under test has done to it.
func ExampleEach() {
	_ = func(t *testing.T) {
		servers.Each(t, func(t *testing.T, s *servers.Server) {
			t.Logf("the client connects to %s", s.URL())
			keys, err := s.Do(t.Context(), "DBSIZE")
			if err != nil {
				t.Fatal(err)
			}
			if keys != int64(0) {
				t.Errorf("there are %v keys, want none", keys)
			}
		}, servers.MaxMemory(64<<20))
	}
	// Output:
}
