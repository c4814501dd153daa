package simulate

import "time"

// event is something that happens at an instant.
type event struct {
	at  time.Duration
	seq uint64 // events of one instant happen in the order in which they were made
	do  func()
}

// events is a heap of what is to happen, the next one first.
type events struct {
	heap []event
	seq  uint64
}

func (e *events) add(at time.Duration, do func()) {
	e.seq++
	e.heap = append(e.heap, event{at, e.seq, do})
	for i := len(e.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !e.before(i, parent) {
			return
		}
		e.heap[i], e.heap[parent] = e.heap[parent], e.heap[i]
		i = parent
	}
}

func (e *events) next() event {
	first := e.heap[0]
	last := len(e.heap) - 1
	e.heap[0], e.heap[last] = e.heap[last], event{}
	e.heap = e.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return first
		}
		if child+1 < last && e.before(child+1, child) {
			child++
		}
		if !e.before(child, i) {
			return first
		}
		e.heap[i], e.heap[child] = e.heap[child], e.heap[i]
		i = child
	}
}

func (e *events) before(i, j int) bool {
	a, b := &e.heap[i], &e.heap[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}
