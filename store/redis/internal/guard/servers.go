package guard

import (
	"slices"
	"sync"
)

// Servers are the guards of all servers of a store. They are safe for concurrent use.
type Servers struct {
	options Options
	any     *Server

	mu     sync.Mutex // guards what follows
	of     map[string]*Server
	closed bool
}

// New returns the guards of a store.
func New(options Options) *Servers {
	s := &Servers{options: options, of: make(map[string]*Server)}
	s.any = newServer("", &s.options)
	return s
}

// Any returns the guard of the only server or, on a cluster, of calls whose node is not known.
func (s *Servers) Any() *Server { return s.any }

// Of returns the guards of the nodes, in the order of the names, and forgets all others.
func (s *Servers) Of(nodes []string) []*Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, one := range s.of {
		if !slices.Contains(nodes, name) {
			one.refusing.end() // by those that have its slots now
			delete(s.of, name)
		}
	}
	all := make([]*Server, len(nodes))
	for i, name := range nodes {
		if s.of[name] == nil {
			s.of[name] = newServer(name, &s.options)
			if s.closed {
				s.of[name].Close()
			}
		}
		all[i] = s.of[name]
	}
	return all
}

// Close refuses all calls from now on.
func (s *Servers) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.any.Close()
	for _, one := range s.of {
		one.Close()
	}
}
