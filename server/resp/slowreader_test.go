package resp

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// TestSlowReader: the rest of a pipeline has arrived long ago when a client that reads late has
// read the answers to its beginning. It is answered too.
func TestSlowReader(t *testing.T) {
	ownClock(t, func(t *testing.T, c *client) {
		c.exchanges([]exchange{{"AUTH " + rightToken, "+OK"}})
		const commands = 10_000 // more than the buffer of a connection, which ends within one
		var writing sync.WaitGroup
		writing.Go(func() {
			if _, err := c.Write([]byte(strings.Repeat("PING\r\n", commands))); err != nil {
				t.Error(err)
			}
		})
		time.Sleep((defaultTimes.read + defaultTimes.write) / 2)
		for i := range commands {
			if got, err := show(c.r); got != "+PONG" || err != nil {
				t.Errorf("answer %d is %s, %v", i, got, err)
				break
			}
		}
		_ = c.Close()
		writing.Wait()
	})
}
