package standby

// queue is a list of memberships, first in, first out.
type queue struct {
	first, last *membership
	length      int
}

func (q *queue) push(m *membership) {
	m.next = nil
	if q.first == nil {
		q.first = m
	} else {
		q.last.next = m
	}
	q.last = m
	q.length++
}

// pop returns nil if the queue is empty.
func (q *queue) pop() *membership {
	m := q.first
	if m == nil {
		return nil
	}
	q.first, m.next = m.next, nil
	q.length--
	return m
}
