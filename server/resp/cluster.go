package resp

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// clusterSlots is how many slots a cluster of Redis has.
const clusterSlots = 16384

// cluster answers clients in cluster mode: this server is a cluster of one node, which has all
// slots.
func (k *call) cluster() {
	sub, args := k.args[1], k.args[2:]
	n := k.conn.node()
	switch p := k.proto; {
	case equal(sub, "SLOTS") && len(args) == 0:
		b := appendInt(appendInt(appendArray(appendArray(k.out, 1), 3), 0), clusterSlots-1)
		b = appendInt(appendBulk(appendArray(b, 4), n.host), n.port)
		k.out = p.appendMap(appendBulk(b, n.id()), 0)
	case equal(sub, "SHARDS") && len(args) == 0:
		port := "port"
		if n.secure {
			port = "tls-port"
		}
		b := appendBulk(p.appendMap(appendArray(k.out, 1), 2), "slots")
		b = appendInt(appendInt(appendArray(b, 2), 0), clusterSlots-1)
		b = p.appendMap(appendArray(appendBulk(b, "nodes"), 1), 7)
		b = appendInt(appendBulk(b, port), n.port)
		for _, field := range [][2]string{{"id", n.id()}, {"ip", n.host}, {"endpoint", n.host}, {"role", "master"}, {"health", "online"}} {
			b = appendBulk(appendBulk(b, field[0]), field[1])
		}
		k.out = appendInt(appendBulk(b, "replication-offset"), 0)
	case equal(sub, "NODES") && len(args) == 0:
		k.out = appendBulk(k.out, fmt.Sprintf("%s %s:%d@0 myself,master - 0 0 1 connected 0-%d\n", n.id(), n.host, n.port, clusterSlots-1))
	case equal(sub, "INFO") && len(args) == 0:
		k.out = appendBulk(k.out, fmt.Sprintf("cluster_state:ok\r\ncluster_slots_assigned:%[1]d\r\ncluster_slots_ok:%[1]d\r\ncluster_slots_pfail:0\r\ncluster_slots_fail:0\r\n"+
			"cluster_known_nodes:1\r\ncluster_size:1\r\ncluster_current_epoch:1\r\ncluster_my_epoch:1\r\n", clusterSlots))
	case equal(sub, "MYID") && len(args) == 0:
		k.out = appendBulk(k.out, n.id())
	case equal(sub, "KEYSLOT") && len(args) == 1:
		k.out = appendInt(k.out, keySlot(args[0]))
	default:
		k.fail("ERR", "CLUSTER "+quote(sub)+" with "+strconv.Itoa(len(args))+" arguments is not known here; there are SLOTS, SHARDS, NODES, INFO, MYID and KEYSLOT")
	}
}

// node is this server as a client's cluster has it.
type node struct {
	host   string
	port   int64
	secure bool // It speaks TLS.
}

// node returns the address that the client is told: the announced one, or that which the client has
// reached. Over TLS its host is the name that the client has asked for, since the certificate is for
// that.
func (c *conn) node() node {
	secure, isTLS := c.nc.(*tls.Conn)
	address := c.server.options.Announce
	if address == "" {
		address = c.nc.LocalAddr().String()
	}
	host, port, _ := net.SplitHostPort(address) // App has checked the announced one.
	n := node{secure: isTLS}
	n.host, _, _ = strings.Cut(host, "%") // A zone means nothing on another machine.
	n.port, _ = strconv.ParseInt(port, 10, 64)
	if isTLS && c.server.options.Announce == "" {
		if name := secure.ConnectionState().ServerName; name != "" {
			n.host = name
		}
	}
	return n
}

// id returns a node id, which is the same for all connections that reach the address.
func (n node) id() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", n.host, n.port))
	return hex.EncodeToString(sum[:20])
}

// keySlot returns the slot of a key: the CRC16 (XMODEM) of the key, or of what stands between its
// first { and the } behind it.
func keySlot(key string) int64 {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			if crc <<= 1; carry {
				crc ^= 0x1021
			}
		}
	}
	return int64(crc % clusterSlots)
}
