package load

import "time"

// usage is the processor time of the sender, and of the service.
type usage struct{ sender, service time.Duration }

// usage reads the processor times. A time that the system does not tell is zero.
func (c *Client) usage() (u usage) {
	u.sender = ownCPU()
	if c.options.PID > 0 {
		u.service, _ = cpuOf(c.options.PID) // It has ended: the answers show that.
	}
	return u
}

// since returns how many cores were busy on average, for the sender and for the service.
func (u usage) since(before usage, passed time.Duration) (sender, service float64) {
	if passed <= 0 {
		return 0, 0
	}
	return float64(u.sender-before.sender) / float64(passed), max(0, float64(u.service-before.service)/float64(passed))
}
