//go:build race

package simulate_test

// runs is how often a scenario runs, each time with another seed. Under the race detector
// a run takes ten times as long, and shows no more of what the detector looks for.
const runs = 1
