// Package stores opens stores on the servers of package servers for tests, and waits for
// what they come to.
//
// # Basics
//
// [OpenURL] opens a store as a user does, with counters of its own and with deadlines
// that a busy machine meets; [Open] takes a client and a clock. [Until], [Ended] and
// [Recovers] wait, with bounds that only what never comes reaches:
//
//	store := stores.OpenURL(t, s.URL())
//	s.Kill()
//	s.Restart()
//	stores.Until(t, "the store answers", func() bool { return store.Ping(t.Context()) == nil })
//
// # Caveats
//
// What fails the test must be called from the test's own goroutine, as t.Fatal must.
package stores
