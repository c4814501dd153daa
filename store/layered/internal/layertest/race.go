//go:build race

package layertest

// RaceEnabled says whether the race detector is in the program. It allocates.
const RaceEnabled = true
