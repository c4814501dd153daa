//go:build !race

package race

// Enabled says whether the race detector is in the program.
const Enabled = false
