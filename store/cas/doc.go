// Package cas makes a [headgate.Store] of any database that can read values and write
// them back if nobody has changed them: compare and set.
//
// # Basics
//
// What the database must do is a [Backend]: begin an attempt, which reads the values
// of some keys and the database's clock, and commit what was decided, all of it or
// nothing. Decisions are made here, by package algorithm, so that they are the same
// as those of every other store:
//
//	store, err := cas.New(backend, cas.Timeout(100*time.Millisecond))
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//
// A backend whose attempts reach several keys makes requests with several checks all
// or nothing; one that reaches a single key refuses them. With a [LedgerBackend],
// [NewLedger] makes a [headgate.Ledger] as well.
//
// # Turns
//
// Calls are spread over lanes by the name of their first counter. While a lane waits for the
// database, it gathers the calls that arrive, and its next attempt decides all of them, one
// after another. So however many requests there are for a hot key, each process has only a
// few attempts under way in the database. A caller that gives up before the values were read
// is never charged.
//
// # What is stored
//
// Each rule and key has one value, named by prefix, rule name, a space and the key:
// the states of the rule's limits, and the log of its sliding windows, in a versioned
// binary form. A value that cannot be read is an error that says so, and never a fresh
// allowance; a reset of the key removes it.
//
// # Caveats
//
// The log of a sliding window is read and written as a whole: about four bytes for each
// request in it. For windows of more than a few thousand requests, sliding_counter is the
// better choice here.
//
// # Reasons
//
// An attempt belongs to no single caller: when a deadline ends a call, the attempt goes on and its
// connection is kept. A call whose caller gave up before it was decided is left out, so that its
// error can say that nothing was charged.
package cas
