package policy

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

// Source holds the set in force, for all who decide by it, and has them change to another one
// while they do. It is safe for concurrent use; make it with [NewSource].
//
//	rules := policy.NewSource(set)
//	limit, err := httplimit.New(store, httplimit.PolicyFrom(rules))
//	…
//	err = rules.Swap(changed) // requests that have begun end by the old set
//
// What was used stays used, because counters are kept in the store under the names of rules.
type Source struct {
	*shared
	// until ends the use by those who use this Source; see Until.
	until context.Context //nolint:containedctx // It is that of users, who come with it once.
}

// shared is the part that a Source shares with those that its Until returns.
type shared struct {
	current atomic.Pointer[Set]
	mu      sync.Mutex
	users   []*user
}

// user is one user of the set in force, such as a middleware.
type user struct {
	prepare Prepare
	until   context.Context //nolint:containedctx // It says how long the user is one.
}

// Prepare checks whether its user can work with a set. If so, it returns a function that puts the
// set in force there. Otherwise it returns an error that says why not, and changes nothing. The
// returned function must not call the Source. Prepare is called by one goroutine at a time.
type Prepare func(*Set) (commit func(), err error)

// NewSource returns a source with its first set. It panics if the set is nil.
func NewSource(set *Set) *Source {
	if set == nil {
		panic("headgate: policy.NewSource needs a set")
	}
	s := &Source{new(shared), context.Background()}
	s.current.Store(set)
	return s
}

// Until returns the same source for users that need it for a limited time. When the context ends,
// the source forgets them and no longer calls them, and they keep the set that they have.
//
//	limit, err := httplimit.New(store, httplimit.PolicyFrom(rules.Until(ctx)))
//
// It is for programs that make middlewares, interceptors or limiters again and again, for tenants
// or when options change. Without Until, each of them is kept for as long as the source exists. In
// rules.Until(a).Until(b) only b counts. Until panics if the context is nil.
func (s *Source) Until(ctx context.Context) *Source {
	if ctx == nil {
		panic("headgate: policy.Source.Until needs a context")
	}
	return &Source{s.shared, ctx}
}

// Set returns the set in force. Use one set for the whole of a request.
func (s *Source) Set() *Set { return s.current.Load() }

// Swap puts another set in force for all users of the source, or for none. If a user cannot work
// with the set, for example because the new rules use an entry that it cannot supply, the previous
// set stays in force, and the error joins what such users say. Swap panics if the set is nil.
func (s *Source) Swap(set *Set) error {
	if set == nil {
		panic("headgate: policy.Source.Swap needs a set")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var commits []func()
	var problems []error
	for _, u := range s.users {
		if u.until.Err() != nil {
			continue // It is about to leave.
		}
		commit, err := u.prepare(set)
		commits = append(commits, commit)
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	for _, commit := range commits {
		commit()
	}
	s.current.Store(set)
	return nil
}

// Use adds a user. It calls prepare now, and again for each set that [Source.Swap] is given. If
// prepare fails now, the user is not added. A user stays for as long as the source exists, or as
// [Source.Until] says. Use is for authors of adapters.
func (s *Source) Use(prepare Prepare) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	commit, err := prepare(s.Set())
	if err != nil {
		return err
	}
	commit()
	u := &user{prepare, s.until}
	s.users = append(s.users, u)
	context.AfterFunc(s.until, func() { s.leave(u) })
	return nil
}

func (s *shared) leave(u *user) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users = slices.DeleteFunc(s.users, func(other *user) bool { return other == u })
}
