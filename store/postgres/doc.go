// Package postgres is a [headgate.Ledger] in PostgreSQL 13 or newer, shared by any
// number of processes. It is for those who have no Redis.
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
// A [Store] is also a bus, over NOTIFY and LISTEN, for the memory of denials; see package
// store/layered/denycache.
//
// Open creates the table if it does not exist. [Migration] returns the SQL for that, for
// those who create their tables themselves. docs/postgres.md lists the parameters of the URL
// and compares the cost with Redis.
//
// # What is stored
//
// There is a row for each rule and key, and one for each request that is remembered; see
// package cas. Expired rows are removed, a few thousand at a time, by every process that has
// the store open.
//
// # Caveats
//
// The store's transactions do not wait until they are on disk: synchronous_commit is off for
// them, though not for others. So a crash of the server forgets what was admitted in the last
// 0.6 s or so. With [Durable] transactions wait.
//
// Errors wrap [headgate.ErrUnavailable]. If an error says that nothing was charged, nothing
// was. Otherwise the deadline passed or the connection was lost while a decision was being
// committed, and the units may be in use. The store never repeats a call that may have
// counted.
//
// The locks are advisory locks; their 64-bit numbers are hashes of the table's and the
// counters' names. An application with advisory locks of its own in the same database may wait
// for one of the store's, with a chance of 1 in 2^64 for each pair. Nothing worse can happen.
package postgres
