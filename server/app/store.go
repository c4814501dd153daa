package app

import (
	"context"
	"errors"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
)

// ErrUnavailable says that what the service needs is not there: its store, or
// its address.
var ErrUnavailable = errors.New("headgate: unavailable")

// unavailable is an ErrUnavailable that says what is not there and why.
type unavailable struct {
	what string
	err  error
}

func (e *unavailable) Error() string {
	return e.what + ": " + errtext.Text(e.err)
}

func (e *unavailable) Unwrap() []error { return []error{ErrUnavailable, e.err} }

// Store is a store that was opened by name, and can be closed.
type Store struct {
	headgate.Store
	name  string
	close func()
}

// OpenStore opens the store that the settings name. The error is a
// [*SettingsError] or wraps [ErrUnavailable]; it does not hold the password.
func OpenStore(ctx context.Context, settings Settings) (*Store, error) {
	return openStore(ctx, settings, nil)
}

// openStore is OpenStore with somebody who is told of each call to a server; nil if
// nobody wants to know.
func openStore(ctx context.Context, settings Settings, observer redis.Observer) (*Store, error) {
	s, err := settings.withDefaults()
	if err != nil {
		return nil, err
	}
	if s.Store == memoryStore {
		var options []memory.Option
		if s.MemoryMiB > 0 {
			options = append(options, memory.MaxBytes(s.MemoryMiB<<20))
		}
		store := memory.New(options...)
		return &Store{Store: store, name: store.String()}, nil
	}
	store, err := backendOf(s.Store).open(ctx, s.Store, backendOptions{timeout: s.StoreTimeout, observer: observer})
	var invalid *headgate.InvalidError
	switch {
	case errors.As(err, &invalid):
		return nil, &SettingsError{prefixed("store: ", invalid.Problems.Texts())}
	case err != nil:
		return nil, &unavailable{"the store " + describeStore(s.Store) + " cannot be used", err}
	}
	return &Store{Store: store, name: describeStore(s.Store), close: store.Close}, nil
}

// Name says which store it is, without what may be secret in its URL.
func (s *Store) Name() string { return s.name }

// Close ends the store's connections. Closing again, or closing nil, does
// nothing.
func (s *Store) Close() error {
	if s == nil || s.close == nil {
		return nil
	}
	s.close()
	s.close = nil
	return nil
}

// LoadPolicy loads the policy file, or the sample policy if there is no name.
// The hash keys are as in [Settings]; a mistake in them is a [*SettingsError]. More
// options of the policy may follow, such as its clock.
func LoadPolicy(name, hashKey, oldHashKey string, more ...policy.Option) (*policy.Set, error) {
	if problems := checkHashKeys(hashKey, oldHashKey); problems != nil {
		return nil, &SettingsError{problems}
	}
	options := append((&Settings{HashKey: hashKey, OldHashKey: oldHashKey}).policyOptions(), more...)
	if name == "" {
		return config.Parse(sampleName, config.Sample(), options...)
	}
	return config.Load(name, options...)
}

// ParsePolicy is [LoadPolicy] for a policy that was read already. The name stands for its file, and
// it can name no files beside it.
func ParsePolicy(name string, data []byte, hashKey, oldHashKey string) (*policy.Set, error) {
	if problems := checkHashKeys(hashKey, oldHashKey); problems != nil {
		return nil, &SettingsError{problems}
	}
	return config.Parse(name, data, (&Settings{HashKey: hashKey, OldHashKey: oldHashKey}).policyOptions()...)
}

// LoadEnvoy loads the configuration of envoyproxy/ratelimit in a directory. The hash
// keys are those of [LoadPolicy].
func LoadEnvoy(dir, hashKey, oldHashKey string) (decide.Policy, error) {
	if problems := checkHashKeys(hashKey, oldHashKey); problems != nil {
		return decide.Policy{}, &SettingsError{problems}
	}
	loaded, err := config.ReadEnvoy(dir, (&Settings{HashKey: hashKey, OldHashKey: oldHashKey}).policyOptions()...)
	return decide.Policy{Set: loaded.Set, Nested: loaded.Nested, Hash: loaded.Hash}, err
}

// sampleName stands for a file where the sample policy is meant.
const sampleName = "sample policy"

func prefixed(prefix string, lines []string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = prefix + line
	}
	return out
}
