//go:build !linux

package servicebench

import (
	"context"
	"errors"
)

// Apart is the machine divided in two, which needs Linux.
type Apart struct{}

// Divide needs Linux.
func Divide(...int) (*Apart, error) {
	return nil, errors.New("servicebench: giving the server a core of its own needs Linux")
}

// Close does nothing.
func (*Apart) Close() error { return nil }

// Start is [Start].
func (*Apart) Start(ctx context.Context, command []string) (string, func() error, error) {
	return Start(ctx, command)
}
