package redis_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// oldProxy is what stands before a server and knows neither RESP3 nor names of
// connections: HELLO and CLIENT are unknown. It returns its address.
func oldProxy(t *testing.T, s *servers.Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // guards open and over
	var open []net.Conn
	over := false
	keep := func(c net.Conn) bool {
		mu.Lock()
		defer mu.Unlock()
		open = append(open, c)
		return !over
	}
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		over = true
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", s.Addr())
			if err != nil || !keep(c) || !keep(up) {
				_ = c.Close()
				continue
			}
			all.Go(func() {
				defer c.Close()
				defer up.Close()
				from, answers := bufio.NewReader(c), bufio.NewReader(up)
				for {
					command, name, err := readCommand(from)
					if err != nil {
						return
					}
					answer := "-ERR unknown command '" + name + "'\r\n"
					if name != "HELLO" && name != "CLIENT" {
						if _, err := io.WriteString(up, command); err != nil {
							return
						}
						if answer, err = readAnswer(answers); err != nil {
							return
						}
					}
					if _, err := io.WriteString(c, answer); err != nil {
						return
					}
				}
			})
		}
	})
	return l.Addr().String()
}

// readCommand returns a command as it came, and its first word.
func readCommand(r *bufio.Reader) (text, name string, err error) {
	if text, err = readAnswer(r); err != nil {
		return "", "", err
	}
	lines := strings.SplitN(text, "\r\n", 4)
	if len(lines) < 4 || lines[0][0] != '*' {
		return "", "", fmt.Errorf("%q is no command", text)
	}
	return text, strings.ToUpper(lines[2]), nil
}

// readAnswer returns a value of RESP2 as it came.
func readAnswer(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	switch {
	case line[0] == '$' && n >= 0:
		rest := make([]byte, n+2)
		_, err = io.ReadFull(r, rest)
		return line + string(rest), err
	case line[0] == '*':
		for range n {
			part, err := readAnswer(r)
			if err != nil {
				return "", err
			}
			line += part
		}
	}
	return line, nil
}

// TestOldProxy: behind what speaks only RESP2, and knows no names of connections, all
// is decided as ever, alone and by shared calls.
func TestOldProxy(t *testing.T) {
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		store := stores.OpenURL(t, "redis://"+oldProxy(t, s)+"?client_name=none&combine_from=8")
		rule := headgate.MustRule("r", headgate.PerHour(50))
		for i := range 50 {
			if d := stores.Allow(t, store, rule, "k"); !d.Allowed || d.Remaining != int64(49-i) {
				t.Fatalf("after %d units: %+v", i, d)
			}
		}
		if d := stores.Allow(t, store, rule, "k"); d.Allowed || d.RetryAfter <= 0 {
			t.Errorf("beyond the limit: %+v", d)
		}
		const callers, each = 32, 50
		many := headgate.MustRule("many", headgate.Per(callers*each, 30*24*time.Hour)) // one in 27 minutes, or a slow machine refills one
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range each {
					if out, err := store.Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: many, Key: "k"}}, nil); err != nil || !out[0].Allowed {
						t.Errorf("got %+v, %v", out, err)
						return
					}
				}
			})
		}
		stores.Ended(t, "all have their decisions", stores.Waited(&all))
		if d := stores.Allow(t, store, many, "k"); d.Allowed {
			t.Errorf("beyond the limit of many: %+v", d)
		}
	})
}
