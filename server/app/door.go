package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
)

// server serves a transport on an address. *http.Server is one.
type server interface {
	// Serve serves until Shutdown or Close, and returns then.
	Serve(net.Listener) error
	// Shutdown waits for requests in flight, until its context ends.
	Shutdown(context.Context) error
	// Close ends at once.
	Close() error
}

// door is one address and the transport that is served there.
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

// Addr returns the address on which a transport is served, with the actual port, or nil if the
// transport is not served. "http" is always served, "grpc" and "resp" if the settings say so.
func (a *App) Addr(name string) net.Addr {
	for _, d := range a.doors {
		if d.name == name {
			return d.listener.Addr()
		}
	}
	return nil
}

// serveDoors serves all doors. The channel receives an error when the first of them has ended. wait
// returns when all have ended, with the errors that were not expected.
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

// shutDoors waits for the requests in flight at all doors.
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

// closeDoors closes all doors at once, and cuts off requests in flight.
func (a *App) closeDoors() {
	for _, d := range a.doors {
		// It closes the listener too; that it was closed before is no news.
		_ = d.server.Close()
		if d.listener != nil {
			_ = d.listener.Close()
		}
	}
}
