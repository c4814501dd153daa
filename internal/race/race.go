// Package race tells tests whether the race detector is in the program. Under it, pools drop what
// is put back at random, so that more is allocated.
//
// Tests that only repeat the same in one goroutine do less of it under the detector: it makes them
// eight times slower and has nothing to find. `make test` runs their packages without the detector
// as well, where they do all of it; the Makefile lists them in TWICE. Tests of one goroutine that
// prove nothing when they do less lie in files with the build constraint !race.
package race

// Fewer is n without the race detector and an eighth of n, at least 1, with it.
func Fewer(n int) int {
	if Enabled {
		return max(1, n/8)
	}
	return n
}
