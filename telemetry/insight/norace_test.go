//go:build !race

package insight

// recallDraws is how much TestSketchRecall counts.
const recallDraws = 2_000_000
