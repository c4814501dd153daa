package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
)

// server is what a transport serves its address with. *http.Server is one.
type server interface {
	// Serve serves until Shutdown or Close, and returns then.
	Serve(net.Listener) error
	// Shutdown lets requests in flight end, until its context does.
	Shutdown(context.Context) error
	// Close ends at once.
	Close() error
}

// door is one address that is served by one transport.
type door struct {
	name     string // as the log has it, such as "http"
	address  string // as it was asked for
	server   server
	listener net.Listener // nil until the door is bound
}

// add has a transport served on an address, once it is bound.
func (a *App) add(name, address string, s server) {
	a.doors = append(a.doors, &door{name: name, address: address, server: s})
}

// bind binds the addresses of all doors.
func (a *App) bind(ctx context.Context) error {
	var config net.ListenConfig
	for _, d := range a.doors {
		l, err := config.Listen(ctx, "tcp", d.address)
		if err != nil {
			return &unavailable{"the address " + d.address + " cannot be served", err}
		}
		d.listener = l
	}
	return nil
}

// Addr is the address that a transport is served on, with the port that was
// taken, or nil if it is not served: "http" always is, "grpc" and "resp" if
// they were asked for.
func (a *App) Addr(name string) net.Addr {
	for _, d := range a.doors {
		if d.name == name {
			return d.listener.Addr()
		}
	}
	return nil
}

// serveDoors serves all doors. The channel has an error once one of them has
// ended; wait returns when all have, with the errors that were not wanted.
func (a *App) serveDoors() (first <-chan error, wait func() error) {
	ended := make(chan error, len(a.doors))
	var all sync.WaitGroup
	for _, d := range a.doors {
		all.Go(func() { ended <- d.server.Serve(d.listener) })
	}
	return ended, func() error {
		all.Wait()
		var errs []error
		for range len(ended) {
			errs = append(errs, unlessClosed(<-ended))
		}
		return errors.Join(errs...)
	}
}

// shutDoors lets the requests in flight at all doors end.
func (a *App) shutDoors(ctx context.Context) error {
	errs := make([]error, len(a.doors))
	var all sync.WaitGroup
	for i, d := range a.doors {
		all.Go(func() {
			if errs[i] = d.server.Shutdown(ctx); errs[i] != nil {
				a.settings.Logger.WarnContext(ctx, "requests in flight are cut off", slog.String("door", d.name))
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// closeDoors frees the addresses without regard for requests in flight.
func (a *App) closeDoors() {
	for _, d := range a.doors {
		// It closes the listener too; that it was closed before is no news.
		_ = d.server.Close()
		if d.listener != nil {
			_ = d.listener.Close()
		}
	}
}
