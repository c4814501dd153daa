package store

import "errors"

// ErrRefused is what errors of opening a store wrap, besides [headgate.ErrUnavailable], if the server
// has answered and does not take the settings, such as the password or the name of the database.
// Whoever tries again with the same settings gets the same answer. Without it, the server is away,
// or not ready yet.
var ErrRefused = errors.New("headgate: the store's server refuses the settings")

// Refused makes err wrap [ErrRefused]. The text stays.
func Refused(err error) error { return refused{err} }

type refused struct{ error }

func (refused) Is(target error) bool { return target == ErrRefused }
func (r refused) Unwrap() error      { return r.error }
