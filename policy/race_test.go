//go:build race

package policy

// raced says that the race detector is on: pools then drop states at random, so
// that what they hold is allocated anew.
const raced = true
