package candidate

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// sketch finds the most frequent of any number of keys in bounded memory (Metwally
// et al., "space-saving"). It counts so many keys; a new one takes the place of the
// one that was seen least, and its count, which is thus too high by that at most.
// Every key that makes up more than one in places of all is there.
type sketch struct {
	mu     sync.Mutex // guards all of it
	places []counted
	where  map[counter]int
}

// counter is what is counted under: a rule and a key, or a list and a client.
type counter struct {
	by  Denier
	key string
}

type counted struct {
	counter
	count int64
	// over is by how much the count is too high at most.
	over int64
}

// maxPlaces is how many keys a sketch counts.
const maxPlaces = 256

func (s *sketch) add(c counter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.where[c]; ok {
		s.places[i].count++
		return
	}
	// The key is a part of a larger text.
	c.key = strings.Clone(c.key)
	if s.where == nil {
		s.where = make(map[counter]int)
	}
	if len(s.places) < maxPlaces {
		s.where[c] = len(s.places)
		s.places = append(s.places, counted{counter: c, count: 1})
		return
	}
	least := 0
	for i := range s.places {
		if s.places[i].count < s.places[least].count {
			least = i
		}
	}
	old := &s.places[least]
	delete(s.where, old.counter)
	s.where[c] = least
	*old = counted{counter: c, count: old.count + 1, over: old.count}
}

// top returns the most frequent keys.
func (s *sketch) top(n int) []Key {
	s.mu.Lock()
	places := slices.Clone(s.places)
	s.mu.Unlock()
	slices.SortFunc(places, func(a, b counted) int {
		return cmp.Or(cmp.Compare(b.count, a.count), a.by.compare(b.by), strings.Compare(a.key, b.key))
	})
	top := make([]Key, 0, min(n, len(places)))
	for _, p := range places[:min(n, len(places))] {
		top = append(top, Key{Denier: p.by, Key: p.key, Count: p.count, Over: p.over})
	}
	return top
}
