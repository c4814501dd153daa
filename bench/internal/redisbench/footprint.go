package redisbench

import (
	"context"
	"errors"
	"fmt"
)

// Footprint is what one contender's keys weigh in the server.
type Footprint struct {
	Contender Contender
	// Total is the growth of the server's memory over the number of keys.
	Total float64
	// Each is the mean of MEMORY USAGE over some of them.
	Each float64
}

// weighedOneByOne is how many keys MEMORY USAGE is asked about.
const weighedOneByOne = 200

// weigh fills an empty server with one contender's keys after the other.
func (s *Server) weigh(ctx context.Context, plan Plan, contenders []Contender) ([]Footprint, error) {
	var footprints []Footprint
	for _, c := range contenders {
		plan.progress("%s: weighing %d keys: %s", s.Version, plan.WeighedKeys, c.Name)
		f, err := s.footprint(ctx, c, plan.WeighedKeys)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		footprints = append(footprints, f)
	}
	return footprints, s.Flush(ctx)
}

func (s *Server) footprint(ctx context.Context, c Contender, keys int) (_ Footprint, err error) {
	if err := s.Flush(ctx); err != nil {
		return Footprint{}, err
	}
	l, err := c.Open(ctx, s.Addr, weighedLimits)
	if err != nil {
		return Footprint{}, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	// One round before the weighing opens connections and loads scripts, whose
	// memory is not the keys'.
	if err := fill(ctx, l, many); err != nil {
		return Footprint{}, err
	}
	if err := s.Flush(ctx); err != nil {
		return Footprint{}, err
	}
	before, err := s.memory(ctx)
	if err != nil {
		return Footprint{}, err
	}
	if err := fill(ctx, l, keys); err != nil {
		return Footprint{}, err
	}
	after, err := s.memory(ctx)
	if err != nil {
		return Footprint{}, err
	}
	some, err := s.keys(ctx, weighedOneByOne, func(string) bool { return true })
	if err != nil {
		return Footprint{}, err
	}
	each, err := s.keyMemory(ctx, some)
	if err != nil {
		return Footprint{}, err
	}
	return Footprint{Contender: c, Total: float64(after-before) / float64(keys), Each: each}, nil
}
