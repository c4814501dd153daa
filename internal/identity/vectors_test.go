package identity

import (
	"encoding/json"
	"net"
	"os"
	"testing"
)

// shared are the tables of client/vectors.json that this package has to keep to.
type shared struct {
	Addresses []addressCase
	APIKeys   []struct {
		Headers [][2]string
		Want    string
		Unclear bool
	} `json:"api_keys"`
	Hosts []struct {
		Host, Want string
		Unclear    bool
	}
}

type addressCase struct {
	Name, Source   string
	Peer, Want     *string
	Trusted, Lines []string
}

// remotes are the peer as net/http has it: with a port, and in Fiber without one.
func (c *addressCase) remotes() []string {
	if c.Peer == nil {
		return []string{"@", ""}
	}
	return []string{net.JoinHostPort(*c.Peer, "4711"), *c.Peer}
}

func vectors(t *testing.T) (all shared) {
	t.Helper()
	text, err := os.ReadFile("../../client/vectors.json")
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(all.Addresses) < 60 || len(all.APIKeys) < 25 || len(all.Hosts) < 50 {
		t.Fatalf("there are %d addresses, %d keys and %d hosts", len(all.Addresses), len(all.APIKeys), len(all.Hosts))
	}
	return all
}
