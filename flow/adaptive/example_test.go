package adaptive_test

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/adaptive"
)

// An estimator can be tried on samples, without a server and without waiting. Here they
// come from a server that works on 20 requests at a time, for 50 ms each; what is beyond
// that waits.
func ExampleKnee() {
	knee, err := adaptive.NewKnee(adaptive.KneeConfig{Initial: 5})
	if err != nil {
		fmt.Println(err)
		return
	}
	const workers, work = 20, 50 * time.Millisecond
	now := time.Second
	for now < time.Minute {
		inFlight := knee.Limit() // there is always more to do
		took := work * time.Duration(max(inFlight, workers)) / workers
		now += took / time.Duration(inFlight)
		knee.Update(adaptive.Sample{Start: now - took, RTT: took, InFlight: inFlight, Outcome: flow.Success})
	}
	// It may just be testing a limit that is a quarter higher.
	fmt.Println("near 20:", 18 <= knee.Limit() && knee.Limit() <= 28)
	fmt.Println("work takes 50 ms:", (knee.Base()-work).Abs() < 5*time.Millisecond)
	// Output:
	// near 20: true
	// work takes 50 ms: true
}
