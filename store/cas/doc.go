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
//	store, err := cas.New(backend, cas.WithTimeout(100*time.Millisecond))
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
// database, the calls that come to it are gathered, and the next attempt decides all
// of them, one after the other, each by itself. A hot key so costs the database a few
// attempts at a time from each process, however many requests there are. Who gives up
// before he is decided, when the values were read, is never charged.
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
// A sliding window's log is read and written whole, some four bytes for each request
// in it. Where a window holds more than a few thousand, sliding_counter is the better
// choice here.
package cas
