// Package memcached is a [headgate.Store] in memcached 1.4.23 or newer, shared by any
// number of processes: for those who have neither Redis nor PostgreSQL, and can live
// with what it cannot do.
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
// A decision is two round trips: the counter is read (gets), and written if nobody has
// changed it meanwhile (cas, or add if there was none). Requests of one process that
// wait for a hot counter are decided together.
//
// # What it cannot do
//
// Memcached changes one key at a time. A rule may have several limits, which are
// checked and charged together, but a request may have one check only: more are an
// [*headgate.InvalidError]. For the same reason it is no [headgate.Ledger]: requests
// have no ids, and there are no reservations.
//
// It tells no time, so that each node decides by its own clock. Keep them set by NTP: they
// may differ by a second ([WithSkew]), and limits are exceeded without a bound where they
// differ by more.
//
// It evicts what was used least when its memory is full, and an evicted counter is a
// fresh allowance that nobody is told of. Start it with -M, which has it refuse
// instead: calls that charge a counter, new or old, then fail with
// [headgate.ErrUnavailable] until enough counters have expired. A restart forgets
// everything.
//
// # What is stored
//
// Each rule and key has one value, see package cas, under a SHA-256 hash of their
// names: keys of memcached are short and have no spaces. A value has at most a million
// bytes, so that a sliding window remembers some 200,000 requests one by one; what
// comes then is merged with the newest one, and leaves the window later than it would
// have, never earlier.
//
// # Caveats
//
// The driver knows no contexts: a caller whose context ends is answered at once, and what
// it asked for may still be charged, which the error says. Neither TLS nor SASL is
// spoken: keep the server on a network of your own.
package memcached
