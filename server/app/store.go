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
)

// ErrUnavailable says that the service cannot use its store or an address.
var ErrUnavailable = errors.New("headgate: unavailable")

// unavailable is an ErrUnavailable that says what cannot be used, and why.
type unavailable struct {
	what string
	err  error
}

func (e *unavailable) Error() string {
	return e.what + ": " + errtext.Text(e.err)
}

func (e *unavailable) Unwrap() []error { return []error{ErrUnavailable, e.err} }

// Store is a store that was opened by its URL, and can be closed.
type Store struct {
	headgate.Store
	name  string
	close func()
}

// OpenStore opens the store that the settings name. The error is a
// [*SettingsError] or wraps [ErrUnavailable]; it does not hold the password.
func OpenStore(ctx context.Context, settings Settings) (*Store, error) {
	s, err := settings.withDefaults()
	if err != nil {
		return nil, err
	}
	return s.openStore(func(b *backend) (closer, error) {
		return b.open(ctx, s.Store, backendOptions{timeout: s.StoreTimeout})
	})
}

// openStore opens the store, a backend's by open.
func (s *Settings) openStore(open func(*backend) (closer, error)) (*Store, error) {
	if s.Store == memoryStore {
		var options []memory.Option
		if s.MemoryMiB > 0 {
			options = append(options, memory.MaxBytes(s.MemoryMiB<<20))
		}
		if s.clock != nil {
			options = append(options, memory.Clock(s.clock.Micros))
		}
		store := memory.New(options...)
		return &Store{Store: store, name: store.String()}, nil
	}
	store, err := open(backendOf(s.Store))
	var invalid *headgate.InvalidError
	switch {
	case errors.As(err, &invalid):
		return nil, &SettingsError{prefixed("store: ", invalid.Problems.Texts())}
	case err != nil:
		return nil, &unavailable{"the store " + describeStore(s.Store) + " cannot be used", err}
	}
	return &Store{Store: store, name: describeStore(s.Store), close: store.Close}, nil
}

// Name is the store's URL without its secrets, or says that it is the memory store.
func (s *Store) Name() string { return s.name }

// Close closes the store's connections. Closing again, or closing nil, does nothing.
func (s *Store) Close() error {
	if s == nil || s.close == nil {
		return nil
	}
	s.close()
	s.close = nil
	return nil
}

// LoadPolicy loads a policy file, or the sample policy if the name is empty. The hash keys are as
// in [Settings]; a mistake in them is a [*SettingsError]. Further options of the policy may be
// given, such as its clock.
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

// ParsePolicy is [LoadPolicy] for a policy that has been read already. The name is used in
// messages. The policy may not name other files.
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

// sampleName is shown as the name of the sample policy's file.
const sampleName = "sample policy"

func prefixed(prefix string, lines []string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = prefix + line
	}
	return out
}
