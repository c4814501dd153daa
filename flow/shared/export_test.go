package shared

// Stop has the heartbeat do nothing any more, as if the process had been stopped.
func Stop(g *Gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.events) > 0 {
		g.unschedule(g.events[0])
	}
}
