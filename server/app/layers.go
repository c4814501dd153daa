package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered"
)

// layers are what stands around a store across a network, from the inside out: what
// decides without it, units that were taken in advance, what is told it afterwards,
// and denials that are remembered. The memory store has none: asking it costs less
// than any of them.
type layers struct {
	without *withoutStore
	lease   *layered.Lease
	async   *layered.Async
	denials *layered.Denials
	logger  *slog.Logger
}

// newLayers makes the layers, or nil for the memory store.
func (a *App) newLayers(ctx context.Context) (*layers, error) {
	without, err := a.newWithoutStore(ctx)
	if err != nil || without == nil {
		return nil, err
	}
	l := &layers{without: without, logger: a.settings.Logger}
	l.lease = layered.NewLease(without.Store(), layered.LeaseOptions{Nodes: without.Nodes})
	if l.async, err = layered.NewAsync(l.lease.Store(), layered.AsyncOptions{}); err != nil {
		l.close()
		return nil, err
	}
	bus, _ := a.store.Store.(layered.Bus)
	l.denials = layered.NewDenials(l.async.Store(), layered.DenyCacheOptions{All: a.settings.DenyCache, Bus: bus})
	return l, nil
}

// store is the store to ask.
func (l *layers) store() headgate.Store { return l.denials.Store() }

// returnWithin is how long a server that ends tries to report what it has admitted,
// and to give back what it holds.
const returnWithin = 2 * time.Second

// close ends the layers from the outside in. What cannot be given back, because the
// store does not answer, stays in use: that is no reason not to end.
func (l *layers) close() {
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), returnWithin)
	defer cancel()
	var err error
	if l.denials != nil {
		l.denials.Close()
	}
	if l.async != nil {
		err = errors.Join(err, l.async.Close(ctx))
	}
	if err = errors.Join(err, l.lease.Close(ctx)); err != nil {
		l.logger.Warn("units were not given back, and admissions not reported, before the end", slog.Any("error", err))
	}
	l.without.close()
}
