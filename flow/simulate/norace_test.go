//go:build !race

package simulate_test

// runs is how often a scenario runs, each time with another seed.
const runs = 2
