// Package app puts the service together: it alone names concrete stores and
// transports.
//
// # Basics
//
// [New] does what can fail, [App.Serve] serves until its context ends:
//
//	service, err := app.New(ctx, app.Settings{PolicyFile: "headgate.yaml", Store: "redis://127.0.0.1:6379/0"})
//	if err != nil {
//		return err
//	}
//	return service.Serve(ctx)
//
// While it serves, it takes a policy file that changes, and [App.Reload] has it
// look at once. A file with mistakes changes nothing, which the log, the metrics
// and /readyz tell.
//
// [OpenStore] and [LoadPolicy] are the same steps one by one, for a command that
// decides without a server.
//
// # Caveats
//
// The memory store is of this process: two services on it do not share limits.
//
// A store that does not answer at the start is an error, so that a typing
// mistake shows at once; one that stops answering later is told in the log, in
// /readyz and in the metrics, and answered with 503 until it is back.
package app
