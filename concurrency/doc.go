// Package concurrency bounds how much is in progress at the same time, where a
// rate says how much may begin.
//
// # Basics
//
// A [Keyed] has a number of permits for each key. Whoever begins something takes
// one, and gives it back in the end:
//
//	perClient := concurrency.NewKeyed(10)
//	permit, ok := perClient.Acquire("user42")
//	if !ok {
//		return errBusy
//	}
//	defer permit.Release()
//
// # Caveats
//
// Permits are of this process: two processes admit twice as much.
package concurrency
