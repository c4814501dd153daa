package resp

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strconv"
	"strings"
)

// session is the state that a client has set for its connection.
type session struct {
	id    int64
	proto protocol
	open  bool // The right token was sent, or none is needed.
	name  string
	queue *queue // the commands since MULTI; nil outside of it
}

func (s *Server) newSession() session {
	return session{id: s.lastID.Add(1), proto: resp2, open: s.options.Token == ""}
}

func sessionCommands() []*command {
	return []*command{
		{name: "PING", least: 1, most: 2, instant: true, run: (*call).ping, summary: "Answers PONG, or with the message.", params: []param{{name: "message", optional: true}}},
		{name: "ECHO", least: 2, most: 2, instant: true, run: (*call).echo, summary: "Answers with the message.", params: []param{{name: "message"}}},
		{name: "QUIT", least: 1, stranger: true, run: (*call).quit, summary: "Closes the connection."},
		{
			name: "HELLO", least: 1, stranger: true, instant: true, run: (*call).hello, summary: "Chooses RESP2 or RESP3, and says what is there.",
			params: []param{
				{name: "version", optional: true},
				{name: "auth", token: "AUTH", optional: true, of: []param{{name: "user"}, {name: "token"}}},
				{name: "name", token: "SETNAME", optional: true},
			},
		},
		{name: "AUTH", least: 2, most: 3, stranger: true, instant: true, run: (*call).auth, summary: "Shows the token.", params: []param{{name: "user", optional: true}, {name: "token"}}},
		{name: "SELECT", least: 2, most: 2, instant: true, run: (*call).choose, summary: "Chooses the database, of which there is one: 0.", params: []param{{name: "index"}}},
		{name: "RESET", least: 1, most: 1, stranger: true, instant: true, run: (*call).reset, summary: "Makes the connection as it was when it was new."},
		{name: "CLIENT", least: 2, instant: true, run: (*call).client, summary: "ID, GETNAME, SETNAME, SETINFO and such, which clients send.", params: []param{{name: "subcommand"}, {name: "argument", optional: true, multiple: true}}},
		{name: "CLUSTER", least: 2, run: (*call).cluster, summary: "SLOTS, SHARDS and such, for clients in cluster mode: this server is a cluster of one node.", params: []param{{name: "subcommand"}, {name: "key", optional: true}}},
		{name: "READONLY", least: 1, most: 1, instant: true, run: (*call).ok, summary: "Does nothing: clients of clusters send it."},
		{name: "READWRITE", least: 1, most: 1, instant: true, run: (*call).ok, summary: "Does nothing: clients of clusters send it."},
		{name: "MULTI", least: 1, most: 1, run: (*call).multi, summary: "Keeps the commands that follow until EXEC."},
		{name: "EXEC", least: 1, most: 1, run: (*call).exec, summary: "Carries out the commands since MULTI, one after the other."},
		{name: "DISCARD", least: 1, most: 1, run: (*call).discard, summary: "Forgets the commands since MULTI."},
		{name: "INFO", least: 1, run: (*call).info, summary: "Says what is there.", params: []param{{name: "section", optional: true, multiple: true}}},
		{name: "COMMAND", least: 1, run: (*call).commandInfo, summary: "Lists the commands: COUNT, LIST, INFO and DOCS.", params: []param{{name: "subcommand", optional: true}, {name: "name", optional: true, multiple: true}}},
	}
}

func (k *call) ok() { k.out = appendSimple(k.out, "OK") }

func (k *call) ping() {
	if len(k.args) == 1 {
		k.out = appendSimple(k.out, "PONG")
		return
	}
	k.echo()
}

func (k *call) echo() { k.out = appendBulk(k.out, k.args[1]) }

func (k *call) quit() {
	k.ok()
	k.conn.quit = true
}

func (k *call) reset() {
	s := &k.conn.session
	if s.open {
		k.conn.stranger = k.conn.now
	}
	*s = session{id: s.id, proto: resp2, open: k.conn.server.options.Token == ""}
	k.out = appendSimple(k.out, "RESET")
}

func (k *call) choose() {
	if k.args[1] != "0" {
		k.fail("ERR", "there is no database but 0")
		return
	}
	k.ok()
}

// shown checks the user and the token, and answers with an error if they are wrong. The comparison
// takes constant time.
func (k *call) shown(user, token string) bool {
	s := k.conn.server
	if s.options.Token == "" {
		k.fail("ERR", "a token was shown, but the server was started without one; are the client's settings those of this server?")
		return false
	}
	sum := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(sum[:], s.token[:])&subtle.ConstantTimeCompare([]byte(user), []byte("default")) != 1 {
		k.fail("WRONGPASS", "the token is another one, or the user is not default")
		return false
	}
	return true
}

func (k *call) auth() {
	user, token := "default", k.args[len(k.args)-1]
	if len(k.args) == 3 {
		user = k.args[1]
	}
	if k.shown(user, token) {
		k.conn.open = true
		k.ok()
	}
}

// hello does everything that its arguments ask for, or nothing.
func (k *call) hello() {
	s, args := &k.conn.session, k.args[1:]
	want := *s
	if len(args) > 0 {
		switch args[0] {
		case "2":
			want.proto = resp2
		case "3":
			want.proto = resp3
		default:
			k.fail("NOPROTO", "there are protocol versions 2 and 3 only")
			return
		}
		args = args[1:]
	}
	for len(args) > 0 {
		switch {
		case equal(args[0], "AUTH") && len(args) > 2:
			if !k.shown(args[1], args[2]) {
				return
			}
			want.open = true
			args = args[3:]
		case equal(args[0], "SETNAME") && len(args) > 1:
			if !k.nameable(args[1]) {
				return
			}
			want.name = strings.Clone(args[1])
			args = args[2:]
		default:
			k.fail("ERR", "HELLO does not know "+quote(args[0])+", or something is missing behind it; write "+k.command.usage())
			return
		}
	}
	if !want.open {
		k.fail("NOAUTH", "HELLO needs the token: HELLO 3 AUTH default TOKEN")
		return
	}
	*s = want
	k.proto = s.proto
	k.out = k.proto.appendMap(k.out, 7)
	for _, field := range [][2]string{{"server", "headgate"}, {"version", k.conn.server.options.Version}, {"mode", "standalone"}, {"role", "master"}} {
		k.out = appendBulk(appendBulk(k.out, field[0]), field[1])
	}
	k.out = appendInt(appendBulk(k.out, "proto"), int64(s.proto))
	k.out = appendInt(appendBulk(k.out, "id"), s.id)
	k.out = appendArray(appendBulk(k.out, "modules"), 0)
}

// nameable checks the name of a client, and answers with an error if it is invalid.
func (k *call) nameable(name string) bool {
	const most = 128
	if len(name) > most {
		k.fail("ERR", fmt.Sprintf("the client's name has %d bytes, must have at most %d", len(name), most))
		return false
	}
	for i := range len(name) {
		if name[i] <= ' ' || name[i] > '~' {
			k.fail("ERR", fmt.Sprintf("byte %d of the client's name is not a visible ASCII character", i+1))
			return false
		}
	}
	return true
}

// client implements the subcommands of CLIENT that client libraries send. CLIENT TRACKING succeeds
// and never sends an invalidation, because no answer here may be cached.
func (k *call) client() {
	sub, args := k.args[1], k.args[2:]
	switch {
	case equal(sub, "ID") && len(args) == 0:
		k.out = appendInt(k.out, k.conn.id)
	case equal(sub, "GETNAME") && len(args) == 0:
		if k.conn.name == "" {
			k.out = k.proto.appendNull(k.out)
			return
		}
		k.out = appendBulk(k.out, k.conn.name)
	case equal(sub, "SETNAME") && len(args) == 1:
		if k.nameable(args[0]) {
			k.conn.name = strings.Clone(args[0])
			k.ok()
		}
	case equal(sub, "SETINFO") && len(args) == 2,
		equal(sub, "TRACKING") && len(args) > 0,
		equal(sub, "NO-EVICT") && len(args) == 1,
		equal(sub, "NO-TOUCH") && len(args) == 1:
		k.ok()
	default:
		k.fail("ERR", "CLIENT "+quote(sub)+" with "+strconv.Itoa(len(args))+" arguments is not known here; there are ID, GETNAME, SETNAME, SETINFO, TRACKING, NO-EVICT and NO-TOUCH")
	}
}

// info answers in the format of Redis, with all sections whatever was asked for. Some clients wait
// until it has loading:0, and some in cluster mode want cluster_enabled:1.
func (k *call) info() {
	s := k.conn.server
	set := s.decider.Policy()
	k.out = appendBulk(k.out, fmt.Sprintf("# Server\r\nheadgate_version:%s\r\nredis_mode:standalone\r\n\r\n"+
		"# Clients\r\nconnected_clients:%d\r\nmaxclients:%d\r\nrefused_connections:%d\r\n\r\n"+
		"# Persistence\r\nloading:0\r\n\r\n# Replication\r\nrole:master\r\n\r\n# Cluster\r\ncluster_enabled:1\r\n\r\n"+
		"# Policy\r\npolicy_version:%d\r\npolicy_hash:%s\r\npolicy_rules:%d\r\n",
		s.options.Version, s.Connections(), s.options.MaxConnections, s.Refused(), set.Version, set.Hash, len(set.Rules())))
}
