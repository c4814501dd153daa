package cas

// Waiting is how many calls have no answer yet.
func (s *Store) Waiting() int {
	s.turns.mu.Lock()
	defer s.turns.mu.Unlock()
	return s.turns.pending
}
