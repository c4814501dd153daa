package target

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestPeerTooLate: a connection that is there when nobody waits for it any more is closed.
func TestPeerTooLate(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	asked, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			ended <- err
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		for r, first := bufio.NewReader(c), true; ; {
			line, err := r.ReadString('\n')
			if err != nil {
				ended <- err
				return
			}
			if first {
				first = false
				close(asked)
				<-goOn
			}
			if !strings.HasPrefix(line, "*") {
				continue
			}
			_, _ = r.ReadString('\n')
			word, _ := r.ReadString('\n')
			answer := "+OK\r\n"
			if strings.HasPrefix(word, "HELLO") {
				answer = "-ERR unknown command 'HELLO'\r\n"
			}
			_, _ = io.WriteString(c, answer)
		}
	}()
	s := &Target{ConnectTimeout: 30 * time.Second}
	go func() {
		<-asked
		cancel()
	}()
	if client, err := s.Peer(ctx, l.Addr().String(), false); err == nil {
		client.Close()
		t.Error("it has waited")
	}
	close(goOn)
	if err := <-ended; !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the connection ended with %v, want it closed", err)
	}
}
