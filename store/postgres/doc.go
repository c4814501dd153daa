// Package postgres is a [headgate.Ledger] in PostgreSQL 13 or newer, shared by any
// number of processes: for those who have no Redis.
//
// # Basics
//
//	store, err := postgres.Open(ctx, "postgres://user:password@127.0.0.1:5432/limits")
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	limiter := headgate.New(store, headgate.MustRule("login", headgate.PerMinute(20)))
//
// A decision is one transaction of two round trips: the first locks the counters, in an
// order that all processes share, reads them and the server's clock; the second writes
// them. Either all limits of a request are charged or none is. Requests of one process
// that wait for a hot counter are decided together, in one transaction.
//
// A [Store] is a bus as well, over NOTIFY and LISTEN, for those who remember denials; see
// package layered.
//
// Open makes the table if it is not there; [Migration] is the SQL that does so, for
// those who make their tables themselves. docs/postgres.md has the parameters of the
// URL, and what it costs beside Redis.
//
// # What is stored
//
// One row for each rule and key, and one for each request that is remembered; see
// package cas. Rows that have expired are removed a few thousand at a time, by any
// process that has the store open.
//
// # Caveats
//
// Transactions do not wait until they are on disk (synchronous_commit is off for them,
// not for others): a crash of the server forgets the admissions of its last moment,
// some 0.6 s. [WithDurable] has them wait.
//
// Errors wrap [headgate.ErrUnavailable]. If one says that nothing was charged, nothing
// was; otherwise the deadline passed, or the connection was lost, while a decision was
// being committed, and the units may be in use. Nothing is repeated that may have
// counted.
//
// The locks are advisory, of 64 bits made of the table's and the counters' names. An
// application that uses advisory locks of its own in the same database may, once in
// some 2^64 pairs, wait for one of them, and nothing worse.
package postgres
