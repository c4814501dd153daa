// Package memcached is a [headgate.Store] in memcached 1.4.23 or newer, shared by any
// number of processes. It is for those who have neither Redis nor PostgreSQL and who can
// accept the limitations below.
//
// # Basics
//
//	store, err := memcached.Open(ctx, "memcached://127.0.0.1:11211")
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	limiter := headgate.New(store, headgate.MustRule("login", headgate.PerMinute(20)))
//
// A decision takes two round trips: the store reads the counter (gets) and writes it if
// nobody has changed it meanwhile (cas, or add if there was none). Requests of one process
// that wait for a hot counter are decided together.
//
// # What it cannot do
//
// Memcached changes one key at a time. A rule may have several limits, which are
// checked and charged together, but a request may have one check only: more are an
// [*headgate.InvalidError]. For the same reason it is no [headgate.Ledger]: requests
// have no ids, and there are no reservations.
//
// Memcached has no clock that could be read, so each node decides by its own. Synchronise
// the clocks by NTP: they may differ by a second ([Skew]). If they differ by more, there
// is no bound on how far limits are exceeded.
//
// When its memory is full, memcached evicts what was used least recently. An evicted counter
// begins again at nothing, and nobody is told. Start memcached with -M, so that it refuses
// to store more instead: calls that charge a counter, new or old, then fail with
// [headgate.ErrUnavailable] until enough counters have expired. A restart of memcached
// forgets everything.
//
// # What is stored
//
// Each rule and key has one value (see package cas) under a SHA-256 hash of their names,
// because memcached's keys are short and have no spaces. A value has at most a million
// bytes, so a sliding window remembers about 200,000 requests one by one. Further requests
// are merged with the newest one: they leave the window later than they would have, never
// earlier.
//
// # Caveats
//
// The driver does not take contexts. A caller whose context ends is answered at once, but its
// request may still be charged; the error says so. The driver supports neither TLS nor SASL:
// keep the server on a private network.
package memcached
