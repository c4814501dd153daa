// Package adaptive finds a good limit for how much may be in progress at the same time.
//
// # Basics
//
// A [Gate] admits as much as an [Estimator] allows. It tells the estimator how long each piece of
// work took and how it ended:
//
//	estimator, err := adaptive.NewKnee(adaptive.KneeConfig{Max: 500})
//	if err != nil {
//		return err
//	}
//	gate := adaptive.New("database", estimator)
//	err = flow.Do(ctx, gate, flow.Request{}, query)
//
// [Knee] is the estimator to use. [AIMD], [Vegas] and [Gradient2] are implemented as they were
// published, for comparison; docs/flow-simulation.md shows all of them in the same scenarios. An
// estimator is a function of its samples: record what your service measures, feed it to an
// estimator, and see which limits result.
//
// # Caveats
//
// The outcome matters as much as the time. If a timeout is reported as Success, the estimator
// learns that work takes as long as the timeout. If a fast failure is, it learns that work takes no
// time. Report timeouts and refusals because of overload as Overload. Report other failures,
// cancelled work and streams as Ignore.
//
// A gate has one limit for one resource that can be overloaded. Use one gate for each upstream
// server, not one for all.
//
// The limit applies to what is in progress through this gate. If several processes call one server,
// a gate that grows gets more done, at the expense of the others, and work hardly takes longer for it.
// So under overload of a server that all work shares, such as a processor, their limits together may
// become higher than is best, the more so the more gates there are. Bound their sum: give each of n
// gates a Max of 2/n of the limit that is best for the server. Give their estimators different seeds.
//
// With a limit of one, a probe cannot lower the limit. With few samples, a window is hard to
// distinguish from chance. So below a limit of about four, the limit is coarse.
package adaptive
