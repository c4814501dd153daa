package dispatch

// queue is first in, first out; what was taken may be put back to the front.
type queue[T any] struct {
	items []T
	head  int // what is before it was taken
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) push(x T) {
	if q.head > 0 && len(q.items) == cap(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, x)
}

// pop takes the first one; there must be one.
func (q *queue[T]) pop() T {
	var zero T
	x := q.items[q.head]
	q.items[q.head] = zero
	q.head++
	if q.head == len(q.items) {
		*q = queue[T]{} // what it had grown to may be much larger than what comes
	}
	return x
}

// unpop puts back what pop took.
func (q *queue[T]) unpop(x T) {
	if q.head == 0 {
		q.items = append([]T{x}, q.items...)
		return
	}
	q.head--
	q.items[q.head] = x
}

// keep removes what is not wanted.
func (q *queue[T]) keep(wanted func(T) bool) {
	var kept []T
	for _, x := range q.items[q.head:] {
		if wanted(x) {
			kept = append(kept, x)
		}
	}
	*q = queue[T]{items: kept}
}
