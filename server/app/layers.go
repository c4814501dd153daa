package app

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered"
	"github.com/headgate/headgate/store/layered/async"
	"github.com/headgate/headgate/store/layered/denycache"
	"github.com/headgate/headgate/store/layered/lease"
)

// layers are the layers around a store across a network, from the inside out: the fallback, shares of
// regions, leases, asynchronous reports, and the deny cache. The memory store has none, because asking it costs less
// than any of them.
type layers struct {
	without *withoutStore
	regions *regionShares // nil without regions
	lease   *lease.Layer
	async   *async.Layer
	denials *denycache.Layer
	carries bool            // whether the store carries messages of servers to each other
	all     []layered.Layer // from the inside out
	logger  *slog.Logger
}

// newLayers makes the layers, or nil for the memory store.
func (a *App) newLayers() (*layers, error) {
	without, err := a.newWithoutStore()
	if err != nil || without == nil {
		return nil, err
	}
	l := &layers{without: without, logger: a.settings.Logger, all: []layered.Layer{without}}
	if l.regions, err = a.newRegionShares(l.store()); err != nil {
		l.close()
		return nil, err
	}
	if l.regions != nil {
		l.all = append(l.all, l.regions)
	}
	add := func(layer layered.Layer, failed error) {
		if err = errors.Join(err, failed); failed == nil {
			l.all = append(l.all, layer)
		}
	}
	var failed error
	l.lease, failed = lease.New(l.store(), lease.Options{Nodes: without.Nodes})
	add(l.lease, failed)
	l.async, failed = async.New(l.store(), async.Options{})
	add(l.async, failed)
	bus, carries := a.store.Store.(denycache.Bus)
	l.carries = carries
	l.denials, failed = denycache.New(l.store(), denycache.Options{All: a.settings.DenyCache, Bus: bus})
	add(l.denials, failed)
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// store is the outermost store, which requests ask.
func (l *layers) store() headgate.Store { return l.all[len(l.all)-1].Store() }

// returnWithin is how long a server that is shut down tries to report what it has admitted, and to
// give back the units that it holds.
const returnWithin = 2 * time.Second

// close ends the layers from the outside in. If the store does not answer, what cannot be given
// back stays in use; close returns all the same.
func (l *layers) close() {
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), returnWithin)
	defer cancel()
	var err error
	for _, layer := range slices.Backward(l.all) {
		err = errors.Join(err, layer.Close(ctx))
	}
	if err != nil {
		l.logger.Warn("units could not be given back, or admissions reported, before the shutdown", slog.Any("error", err))
	}
}
