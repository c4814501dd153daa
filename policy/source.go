package policy

import (
	"errors"
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
	current atomic.Pointer[Set]
	mu      sync.Mutex
	users   []Prepare
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
	s := new(Source)
	s.current.Store(set)
	return s
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
	commits := make([]func(), len(s.users))
	var problems []error
	for i, prepare := range s.users {
		commit, err := prepare(set)
		commits[i] = commit
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
// does. It is for authors of adapters.
func (s *Source) Use(prepare Prepare) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	commit, err := prepare(s.Set())
	if err != nil {
		return err
	}
	commit()
	s.users = append(s.users, prepare)
	return nil
}
