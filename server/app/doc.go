// Package app puts the service together. It is the only package that names concrete stores and
// transports.
//
// # Basics
//
// [New] does everything that can fail, and [App.Serve] serves until its context ends:
//
//	service, err := app.New(ctx, app.Settings{PolicyFile: "headgate.yaml", Store: "redis://127.0.0.1:6379/0"})
//	if err != nil {
//		return err
//	}
//	return service.Serve(ctx)
//
// The service notices by itself that the policy file has changed; [App.Reload] makes it look at
// once. A file with mistakes changes nothing. The log, the metrics and /readyz then say so.
//
// [OpenStore] and [LoadPolicy] do parts of this, for commands that decide without a server.
//
// # Caveats
//
// The memory store belongs to the process: two services with memory stores do not share limits.
//
// A store that does not answer at the start is an error, so that a typing mistake shows at once. If
// a store stops answering later, the log, /readyz and the metrics say so, and each rule does what
// its on_store_error says until the store is back.
package app
