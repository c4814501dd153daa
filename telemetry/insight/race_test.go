//go:build race

package insight

// recallDraws is how much TestSketchRecall counts: what is judged without the race detector
// takes ten times as long under it.
const recallDraws = 200_000
