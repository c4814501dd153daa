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
	// until is when those leave who come by this Source.
	until context.Context //nolint:containedctx // It is that of users, who come with it once.
}

// shared is what a Source and those that its Until returns have in common.
type shared struct {
	current atomic.Pointer[Set]
	mu      sync.Mutex
	users   []*user
}

// user is one who decides by the set in force.
type user struct {
	prepare Prepare
	until   context.Context //nolint:containedctx // It says how long the user is one.
}

// Prepare looks whether its caller can decide by a set. If it can, Prepare returns a function that
// puts the set in force there, and otherwise an error that says why not, and changes nothing. The
// function must not call the Source. Calls come one at a time.
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

// Until returns the same source for those who use it for a while: they leave it when the context
// ends. The source then keeps nothing of them and asks them nothing, and they go on deciding by the
// set that they have.
//
//	limit, err := httplimit.New(store, httplimit.PolicyFrom(rules.Until(ctx)))
//
// Whoever makes middlewares, interceptors or limiters again and again, for tenants or at each change
// of their options, needs it: those who come by the source itself stay for as long as the source does.
// Of rules.Until(a).Until(b) only b counts. Until panics if the context is nil.
func (s *Source) Until(ctx context.Context) *Source {
	if ctx == nil {
		panic("headgate: policy.Source.Until needs a context")
	}
	return &Source{s.shared, ctx}
}

// Set returns the set in force. A request uses one set throughout.
func (s *Source) Set() *Set { return s.current.Load() }

// Swap puts another set in force for all who use the source, or for none of them. The error joins
// what they say, such as that the new rules look at an entry which nothing finds; the set before
// stays in force then. It panics if the set is nil.
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

// Use adds one who decides by the set in force: prepare is called for it now, and for each set
// that [Source.Swap] is given. With an error it is not added. It stays for as long as the source
// does, or as [Source.Until] says. It is for authors of adapters.
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
