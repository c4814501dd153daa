package resp

import (
	"bufio"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store/memory"
)

// ownClock serves one connection in a bubble, whose clock is the connection's, until f
// has ended.
func ownClock(t *testing.T, f func(t *testing.T, c *client)) {
	bubbletest.Test(t, func(t *testing.T) {
		s := New(over(samplePolicy(t), memory.New()), Options{Token: rightToken})
		here, there := net.Pipe()
		s.begin(there)
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			_ = here.Close()
			s.running.Wait()
		}()
		f(t, &client{t, here, bufio.NewReader(here)})
	})
}

const rightToken = "correct-horse-battery-staple"

// TestStrangersMayNotStay: who has not shown the token has the time of a handshake for
// it, whatever is sent meanwhile.
func TestStrangersMayNotStay(t *testing.T) {
	for name, piece := range map[string]string{
		"guesses":               "AUTH x\r\n",
		"guesses, never whole":  "H x\r\nAUT",
		"new again and again":   "RESET\r\n",
		"a command in pieces":   " ",
		"nothing but its lines": "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			ownClock(t, func(t *testing.T, c *client) {
				began := time.Now()
				var writing sync.WaitGroup
				writing.Go(func() {
					for time.Since(began) < 5*time.Minute {
						if _, err := c.Write([]byte(piece)); err != nil {
							return
						}
						time.Sleep(time.Second)
					}
				})
				for {
					if _, err := show(c.r); err != nil {
						break
					}
				}
				if stayed := time.Since(began); stayed > defaultTimes.handshake+time.Second {
					t.Errorf("it stayed for %v", stayed)
				}
				_ = c.Close()
				writing.Wait()
			})
		})
	}
}

// TestResetBeginsAnew: RESET takes the token back, and leaves time to show it again,
// once.
func TestResetBeginsAnew(t *testing.T) {
	ownClock(t, func(t *testing.T, c *client) {
		c.exchanges([]exchange{{"AUTH " + rightToken, "+OK"}})
		time.Sleep(time.Minute)
		c.exchanges([]exchange{{"RESET", "+RESET"}})
		time.Sleep(defaultTimes.handshake / 2)
		c.exchanges([]exchange{{"PING", "-NOAUTH …"}, {"RESET", "+RESET"}, {"AUTH " + rightToken, "+OK"}, {"PING", "+PONG"}, {"RESET", "+RESET"}})
		began := time.Now()
		if !c.ended() {
			t.Error("without the token it goes on")
		}
		if stayed := time.Since(began); stayed < defaultTimes.handshake || stayed > defaultTimes.handshake+time.Second {
			t.Errorf("it stayed for %v", stayed)
		}
	})
}
