package memcached_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/test/servers"
)

// keys are all that the server has, as its crawler tells them, which is busy with other
// things at times and then tells of none.
func keys(t *testing.T, s *servers.Memcached) []string {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		found, err := crawl(s)
		if err == nil {
			return found
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func crawl(s *servers.Memcached) ([]string, error) {
	conn, err := net.DialTimeout("tcp", s.Addr(), 10*time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprint(conn, "lru_crawler metadump all\r\n"); err != nil {
		return nil, err
	}
	var found []string
	lines := bufio.NewScanner(conn)
	for lines.Scan() && lines.Text() != "END" {
		rest, ok := strings.CutPrefix(lines.Text(), "key=")
		if !ok {
			return nil, fmt.Errorf("the crawler says %q", lines.Text())
		}
		name, _, _ := strings.Cut(rest, " ")
		key, err := url.QueryUnescape(name)
		if err != nil {
			return nil, err
		}
		found = append(found, key)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, errors.New("the server has no keys")
	}
	return found, nil
}
