// Package target parses the URL of a store in Redis or Valkey, and connects to the servers that it
// names: a single server, the primary behind Sentinels, or the nodes of a cluster.
package target

import (
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// Topology says how the servers of a store work together.
type Topology uint8

const (
	// Single is a single server.
	Single Topology = iota
	// Sentinels is a primary and its replicas. The Sentinels know which server is the primary.
	Sentinels
	// Cluster is the nodes of a cluster.
	Cluster
)

// Settings are the settings of the store itself that a URL can have. [Parse] changes only those
// that the URL has.
type Settings struct {
	Prefix                  string
	MaxPending, CombineFrom int64
}

// Target says where the servers are and how to reach them, as a URL says it.
type Target struct {
	Topology Topology
	Hosts    []string // host:port
	scheme   string
	tls      bool
	user     string
	password string
	database int
	Master   string // the name by which Sentinels know the primary

	passwordFile         string
	sentinelUser         string
	sentinelPasswordFile string

	caFile, certFile, keyFile, serverName string

	clientName     string
	ConnectTimeout time.Duration
	refresh        time.Duration
	connections    int64
	Queue          int64 // the places in the queue of each connection
	readBuffer     int64
	writeBuffer    int64

	given map[string]bool // the names of the parameters that the URL has
}

// The defaults of settings that only a URL can have.
const (
	DefaultConnectTimeout = time.Second
	defaultRefresh        = 2 * time.Second
	defaultBuffer         = 64 << 10

	// A queue of 2^14 places takes 6 MB for each connection. On a cluster, a client has connections
	// to all nodes, and the nodes share its calls. So each queue can be smaller.
	defaultQueue        = 1 << 14
	defaultClusterQueue = 1 << 12
)

// forms has, for each scheme, the topology, whether TLS is used, and how a URL is written.
var forms = map[string]struct {
	topology Topology
	tls      bool
	form     string
}{
	"redis":           {Single, false, "redis://user:password@host:port/database"},
	"rediss":          {Single, true, "rediss://user:password@host:port/database"},
	"redis-sentinel":  {Sentinels, false, "redis-sentinel://user:password@host1:port,host2:port/database?master=name"},
	"rediss-sentinel": {Sentinels, true, "rediss-sentinel://user:password@host1:port,host2:port/database?master=name"},
	"redis-cluster":   {Cluster, false, "redis-cluster://user:password@host1:port,host2:port"},
	"rediss-cluster":  {Cluster, true, "rediss-cluster://user:password@host1:port,host2:port"},
}

// String returns the URL without its secrets, for logs: scheme, addresses, database and the name of
// the primary.
func (t *Target) String() string {
	u := url.URL{Scheme: t.scheme, Host: strings.Join(t.Hosts, ",")}
	if t.Topology != Cluster {
		u.Path = "/" + strconv.Itoa(t.database)
	}
	if t.Master != "" {
		u.RawQuery = url.Values{"master": {t.Master}}.Encode()
	}
	return u.String()
}

// Parse parses the URL of a store, and changes those settings that the URL has. Such a URL may list
// several hosts with ports, which is not a form that RFC 3986 knows. The error is an
// [*headgate.InvalidError] that lists every mistake. It contains no passwords, and nothing that
// could be a part of one.
func Parse(text string, set *Settings) (*Target, error) {
	var problems headgate.Problems
	bad := problems.Add
	scheme, rest, ok := strings.Cut(text, "://")
	f, known := forms[scheme]
	if !ok || !known {
		return nil, invalidURL("it does not begin with redis://, redis-sentinel:// or redis-cluster://, nor with rediss in the place of redis, for TLS; write " + forms["redis"].form)
	}
	const escape = "in a password, write / ? # @ % as %2F %3F %23 %40 %25"
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, rest := rest[:end], rest[end:]
	if strings.Contains(rest, "@") {
		// A password that contains a / ? or # was cut there, and this is the rest of it.
		return nil, invalidURL("there is an @ behind the host; " + escape)
	}
	t := &Target{
		Topology: f.topology, scheme: scheme, tls: f.tls,
		clientName: "headgate", ConnectTimeout: DefaultConnectTimeout, refresh: defaultRefresh,
		connections: 1, Queue: defaultQueue, readBuffer: defaultBuffer, writeBuffer: defaultBuffer,
		given: make(map[string]bool),
	}
	if t.Topology == Cluster {
		t.Queue = defaultClusterQueue
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		if t.Topology != Single && strings.Contains(authority[:at], "@") {
			bad("user", "there is more than one @ before the end of the addresses: user and password stand once, before the first address; %s", escape)
		}
		user, password, _ := strings.Cut(authority[:at], ":")
		var err, err2 error
		t.user, err = url.PathUnescape(user)
		t.password, err2 = url.PathUnescape(password)
		if err != nil || err2 != nil {
			bad("password", "the user or the password has a %% that does not begin an escaped byte; %s", escape)
			t.user = ""
		}
		authority = authority[at+1:]
	}
	t.Hosts = hosts(authority, t.Topology, bad)
	rest, fragment, _ := strings.Cut(rest, "#")
	if fragment != "" {
		bad("url", "there is a # behind the host; %s", escape)
	}
	path, query, _ := strings.Cut(rest, "?")
	t.readDatabase(path, bad)
	t.readParameters(query, set, bad)
	t.agree(bad)
	if problems != nil {
		problems[len(problems)-1].Text += "; write " + f.form
		return nil, problems.Err(urlSubject)
	}
	return t, nil
}

// urlSubject is the subject of every error about a URL.
const urlSubject = "redis URL"

func invalidURL(text string) error { return headgate.Invalid(urlSubject, "url", "%s", text) }

// hosts parses a list of addresses. An address without a port gets the standard port.
func hosts(list string, topology Topology, bad func(field, format string, args ...any)) []string {
	standard := "6379"
	if topology == Sentinels {
		standard = "26379"
	}
	if list == "" {
		bad("host", "there is no host")
		return nil
	}
	var all []string
	for i, address := range strings.Split(list, ",") {
		host, port := address, standard
		bare := strings.Contains(address, ":") && !strings.HasPrefix(address, "[")
		if strings.Count(address, ":") == 1 || strings.HasPrefix(address, "[") && !strings.HasSuffix(address, "]") {
			var err error
			if host, port, err = net.SplitHostPort(address); err != nil {
				bad("host", "address %d is not host:port", i+1)
				continue
			}
		}
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		n, err := strconv.Atoi(port)
		switch {
		case host == "":
			bad("host", "address %d has no host", i+1)
		case strings.ContainsFunc(host, notInHost):
			bad("host", "address %d has a host with signs that none has", i+1)
		case strings.Contains(host, ":") && (bare || net.ParseIP(host) == nil):
			bad("host", "address %d is not host:port; an IPv6 address stands in brackets", i+1)
		case err != nil || n < 1 || n > 65535:
			bad("host", "the port of address %d is not a number from 1 to 65535", i+1)
		default:
			all = append(all, net.JoinHostPort(host, strconv.Itoa(n)))
		}
	}
	if topology == Single && len(all) > 1 {
		bad("host", "there are %d addresses, must be one; several are for redis-sentinel:// and redis-cluster://", len(all))
	}
	return all
}

// notInHost reports whether names and addresses of hosts cannot contain the character.
func notInHost(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._:", c)
}

func (t *Target) readDatabase(path string, bad func(field, format string, args ...any)) {
	path = strings.Trim(path, "/")
	if path == "" {
		return
	}
	n, err := strconv.Atoi(path)
	switch {
	case err != nil || n < 0 || n > 1<<20:
		bad("database", "the database is not a number from 0 on")
	case t.Topology == Cluster && n != 0:
		bad("database", "the database is %d, but a cluster has only 0", n)
	}
	t.database = n
}

// agree reports parameters that are missing or cannot be combined.
func (t *Target) agree(bad func(field, format string, args ...any)) {
	if t.Topology == Sentinels && t.Master == "" {
		bad("master", "master is not given: the name that the Sentinels know the primary by")
	}
	if t.Topology != Sentinels {
		for _, name := range []string{"master", "sentinel_user", "sentinel_password_file"} {
			if t.given[name] {
				bad(name, "%s is for redis-sentinel:// only", name)
			}
		}
	}
	if t.Topology == Single && t.given["refresh"] {
		bad("refresh", "refresh is for redis-sentinel:// and redis-cluster:// only: one server is always where it was")
	}
	if !t.tls {
		for _, name := range []string{"ca_file", "cert_file", "key_file", "server_name"} {
			if t.given[name] {
				bad(name, "%s is for TLS, which begins with rediss in the scheme or tls=true", name)
			}
		}
	}
	if (t.certFile == "") != (t.keyFile == "") {
		bad("cert_file", "cert_file and key_file go together")
	}
	if t.password != "" && t.passwordFile != "" {
		bad("password_file", "there are a password and a password_file; keep one")
	}
	if t.sentinelUser != "" && t.sentinelPasswordFile == "" {
		bad("sentinel_user", "sentinel_user needs a sentinel_password_file")
	}
	if t.user != "" && t.password == "" && t.passwordFile == "" {
		bad("password", "there is a user without a password")
	}
}
