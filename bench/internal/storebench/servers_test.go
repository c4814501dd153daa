package storebench

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/bench/internal/servers"
)

func TestRedis(t *testing.T) {
	s, err := servers.StartRedis(t.Context(), "redis-server")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(s.Version, "redis-server ") || len(s.Version) < len("redis-server 6.2") {
		t.Errorf("the version is %q", s.Version)
	}
	cpu, err := s.CPU()
	if used, err2 := s.Memory(t.Context()); used <= 0 || cpu < 0 || errors.Join(err, err2) != nil {
		t.Errorf("it uses %d bytes and %v of CPU, errors %v, %v", used, cpu, err, err2)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

// TestDatabases: they answer, and end when they are told to.
func TestDatabases(t *testing.T) {
	m, err := servers.StartMemcached(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(m.URL, "memcached://127.0.0.1:") || !strings.HasPrefix(m.Version, "memcached ") {
		t.Errorf("%q, %q", m.URL, m.Version)
	}
	p, err := servers.StartPostgres(t.Context())
	if err != nil {
		t.Error(err)
	} else if err := p.Stop(); err != nil || !strings.HasPrefix(p.Version, "postgres ") {
		t.Errorf("%q: %v", p.Version, err)
	}
	if err := m.Stop(); err != nil {
		t.Error(err)
	}
}
