package load

import "time"

// usage is how long processors were busy for the sender, and for the service.
type usage struct{ sender, service time.Duration }

// usage reads it. What the system does not say is zero.
func (c *Client) usage() (u usage) {
	u.sender = ownCPU()
	if c.options.PID > 0 {
		u.service, _ = cpuOf(c.options.PID) // It has ended: the answers show that.
	}
	return u
}

// since is how many cores were busy, on average, for the sender and for the service.
func (u usage) since(before usage, passed time.Duration) (sender, service float64) {
	if passed <= 0 {
		return 0, 0
	}
	return float64(u.sender-before.sender) / float64(passed), max(0, float64(u.service-before.service)/float64(passed))
}
