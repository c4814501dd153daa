package resp

import (
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/store/memory"
)

// TestCluster: in both protocols, this server is a cluster of one node at the address that the
// client has reached.
func TestCluster(t *testing.T) {
	_, addr := start(t, over(samplePolicy(t), memory.New()), Options{})
	c := dial(t, addr)
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	id := c.do("CLUSTER MYID")
	if !regexp.MustCompile("^[0-9a-f]{40}$").MatchString(id) {
		t.Errorf("the id is %s", id)
	}
	c.exchanges([]exchange{
		{"READONLY", "+OK"},
		{"cluster slots", "[[0 16383 [127.0.0.1 " + port + " " + id + " []]]]"},
		{"CLUSTER SHARDS", "[[slots [0 16383] nodes [[port " + port + " id " + id + " ip 127.0.0.1 endpoint 127.0.0.1 role master health online replication-offset 0]]]]"},
		{"CLUSTER NODES", id + " 127.0.0.1:" + port + "@0 myself,master - 0 0 1 connected 0-16383\n"},
		{"CLUSTER INFO", "cluster_state:ok\r\ncluster_slots_assigned:16384\r\n…"},
		{"CLUSTER RESET HARD", `-ERR CLUSTER "RESET" with 1 arguments is not known here; there are SLOTS, SHARDS, NODES, INFO, MYID and KEYSLOT`},
		{"HELLO 3", "{server: headgate, …"},
		{"CLUSTER SLOTS", "[[0 16383 [127.0.0.1 " + port + " " + id + " {}]]]"},
		{"CLUSTER SHARDS", "[{slots: [0 16383], nodes: [{port: " + port + ", id: " + id + ", ip: 127.0.0.1, …"},
	})
	// Those of the cluster specification, and what redis-server says.
	for key, slot := range map[string]int{"123456789": 12739, "": 0, "foo": 12182, "{user1000}.following": 3443, "{user1000}.followers": 3443, "foo{}{bar}": 8363, "foo{{bar}}zap": 4015, "foo{bar}{zap}": 5061} {
		c.write(wire("CLUSTER", "KEYSLOT", key))
		if got := c.answer(); got != strconv.Itoa(slot) {
			t.Errorf("the slot of %q is %s, want %d", key, got, slot)
		}
	}
}

// TestClusterElsewhere: a client is told the announced address. (TestTLS has what it is told over TLS.)
func TestClusterElsewhere(t *testing.T) {
	_, addr := start(t, over(samplePolicy(t), memory.New()), Options{Announce: "[2001:db8::7]:6390"})
	if got := dial(t, addr).do("CLUSTER SLOTS"); !strings.HasPrefix(got, "[[0 16383 [2001:db8::7 6390 ") {
		t.Errorf("the address is %s", got)
	}
}
