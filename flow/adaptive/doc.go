// Package adaptive finds out how much may be in progress at the same time.
//
// # Basics
//
// A [Gate] lets in as much as an [Estimator] says, and tells the estimator how long
// everything took and how it ended:
//
//	estimator, err := adaptive.NewKnee(adaptive.KneeConfig{Max: 500})
//	if err != nil {
//		return err
//	}
//	gate := adaptive.New("database", estimator)
//	permit, err := gate.Acquire(ctx, flow.Request{})
//	if err != nil {
//		return err
//	}
//	defer permit.Done(flow.Ignore)
//	err = query(ctx)
//	if errors.Is(err, context.DeadlineExceeded) {
//		permit.Done(flow.Overload)
//	} else if err == nil {
//		permit.Done(flow.Success)
//	}
//
// [Knee] is the estimator to use. [AIMD], [Vegas] and [Gradient2] are there as they
// were published, for those who want to compare; docs/flow-simulation.md shows all of
// them in the same trouble. An estimator is a function of its samples: record what your
// service sees, feed it to one, and look what limits come out.
//
// # Caveats
//
// The outcome matters as much as the time. A timeout reported as Success teaches that
// work takes as long as the timeout, and a fast failure that it takes no time. Report
// timeouts and answers of overload as Overload, and failures of other kinds, cancelled
// work and streams as Ignore.
//
// A gate has one limit for one thing that can be overloaded: one for each upstream
// server, not one for all.
//
// The limit is for what is in progress through this gate. Several processes that call
// one server each find their share of it, as TCP connections do on a link. Give their
// estimators different seeds.
//
// With a limit of one there is nothing to lower in order to probe, and windows of a few
// samples are told apart from chance with difficulty: below about four in progress the
// limit is coarse.
package adaptive
