package servers

import (
	"fmt"
	"os/exec"
	"testing"
)

// Kind is a server program that speaks the Redis protocol.
type Kind string

// The kinds that every promise is tested on.
const (
	Redis  Kind = "redis"
	Valkey Kind = "valkey"
)

// Kinds are all the kinds, in the order in which [Each] takes them.
func Kinds() []Kind { return []Kind{Redis, Valkey} }

// Program is the name of the kind's executable, such as "redis-server". It is
// the name of the Debian package as well.
func (k Kind) Program() string { return string(k) + "-server" }

// find returns the path of the kind's executable.
func (k Kind) find() (string, error) {
	path, err := exec.LookPath(k.Program())
	if err != nil {
		return "", fmt.Errorf("servers: %s is not installed (%w): run `make test`, which installs it, or `apt-get install %s`",
			k.Program(), err, k.Program())
	}
	return path, nil
}

// Each runs test as a subtest for every kind, named after it, with a server
// started for that subtest alone.
func Each(t *testing.T, test func(t *testing.T, s *Server), options ...Option) {
	t.Helper()
	for _, kind := range Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			test(t, Start(t, kind, options...))
		})
	}
}
