package limiterbench

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/workload"
)

// contender is one limiter under measurement. Other projects have the role [measure.Other].
type contender struct {
	// name and note go into the tables; the note says what a decision is here.
	name, note string
	role       measure.Role
	// open returns a limiter that holds each class of keys to its limit. It is empty, or connected
	// to the server at addr.
	open opening
}

type opening func(ctx context.Context, addr string, q workload.Limits) (*limiter, error)

// limiter is an open contender.
type limiter struct {
	// add announces a key before it is asked about for the first time; nil where
	// a contender needs no such thing.
	add func(c workload.Class, key string) error
	// take asks for one unit. Many goroutines call it at once.
	take take
	// fill is take with every limit as large as the first, so that a long log can be written at
	// once, and prefix is what this contender's keys in the server begin with. Only contenders with
	// sliding windows have both.
	fill   take
	prefix string
	// end ends connections and what runs in the background; nil if there is nothing.
	end func() error
}

type take func(c workload.Class, key string) (allowed bool, err error)

func (l *limiter) close() error {
	if l.end == nil {
		return nil
	}
	return l.end()
}

// insist asks for one unit and returns an error if the answer is not as expected.
func (l *limiter) insist(c workload.Class, key string, want bool) error {
	allowed, err := l.take(c, key)
	if err != nil {
		return fmt.Errorf("key %s (%s): %w", key, c, err)
	}
	if allowed != want {
		return fmt.Errorf("key %s (%s): allowed is %t, must be %t", key, c, allowed, want)
	}
	return nil
}

// rows has a row for each contender.
func rows(contenders []contender) measure.Rows {
	rows := make(measure.Rows, len(contenders))
	for i, c := range contenders {
		rows[i] = measure.Row{Name: c.name, Note: c.note, Role: c.role}
	}
	return rows
}

// sequenceLength is the smallest power of two that is not below n.
func sequenceLength(n int) int {
	length := 1
	for length < n {
		length *= 2
	}
	return length
}
