package redis

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// topology is how the servers belong together.
type topology uint8

const (
	single topology = iota
	sentinels
	cluster
)

// target is what a URL says of where the servers are and how to reach them.
type target struct {
	topology topology
	tls      bool
	hosts    []string // host:port
	user     string
	password string
	database int
	master   string

	passwordFile         string
	sentinelUser         string
	sentinelPasswordFile string

	caFile, certFile, keyFile, serverName string

	clientName     string
	connectTimeout time.Duration
	refresh        time.Duration
	connections    int64
	queue          int64
	readBuffer     int64
	writeBuffer    int64

	given map[string]bool // the parameters
}

// The defaults of what only a URL can say.
const (
	defaultConnectTimeout = time.Second
	defaultRefresh        = 2 * time.Second
	defaultBuffer         = 64 << 10

	// A queue of 2^14 places takes 6 MB for each connection. The nodes of a
	// cluster share the calls, and its clients speak to all of them.
	defaultQueue        = 1 << 14
	defaultClusterQueue = 1 << 12
)

// parameter is what may stand behind the ? of a URL.
type parameter struct {
	name string
	set  func(t *target, s *settings, value string) string // what is wrong with it, or ""
}

var parameters = []parameter{
	{"ca_file", text(func(t *target) *string { return &t.caFile })},
	{"cert_file", text(func(t *target) *string { return &t.certFile })},
	{"client_name", func(t *target, _ *settings, value string) string {
		if value == "" || strings.ContainsFunc(value, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return "must be letters, digits and signs of ASCII, without spaces; none leaves it out"
		}
		if t.clientName = value; value == "none" {
			t.clientName = ""
		}
		return ""
	}},
	{"combine_from", number(0, 1<<20, false, func(_ *target, s *settings) *int64 { return &s.combineFrom })},
	{"connect_timeout", duration(10*time.Millisecond, time.Minute, func(t *target, _ *settings) *time.Duration { return &t.connectTimeout })},
	{"connections", number(1, 8, true, func(t *target, _ *settings) *int64 { return &t.connections })},
	{"key_file", text(func(t *target) *string { return &t.keyFile })},
	{"master", text(func(t *target) *string { return &t.master })},
	{"max_pending", number(1, 1<<20, false, func(_ *target, s *settings) *int64 { return &s.maxPending })},
	{"password_file", text(func(t *target) *string { return &t.passwordFile })},
	{"prefix", func(_ *target, s *settings, value string) string { s.prefix = value; return "" }},
	{"queue", number(1<<8, 1<<18, true, func(t *target, _ *settings) *int64 { return &t.queue })},
	{"read_buffer", number(1<<10, 1<<24, false, func(t *target, _ *settings) *int64 { return &t.readBuffer })},
	{"refresh", duration(100*time.Millisecond, time.Hour, func(t *target, _ *settings) *time.Duration { return &t.refresh })},
	{"sentinel_password_file", text(func(t *target) *string { return &t.sentinelPasswordFile })},
	{"sentinel_user", text(func(t *target) *string { return &t.sentinelUser })},
	{"server_name", text(func(t *target) *string { return &t.serverName })},
	{"tls", func(t *target, _ *settings, value string) string {
		switch {
		case value != "true" && value != "false":
			return "must be true or false"
		case value == "false" && t.tls:
			return "is false, but the scheme asks for it"
		}
		t.tls = value == "true"
		return ""
	}},
	{"write_buffer", number(1<<10, 1<<24, false, func(t *target, _ *settings) *int64 { return &t.writeBuffer })},
}

func text(field func(*target) *string) func(*target, *settings, string) string {
	return func(t *target, _ *settings, value string) string {
		if value == "" {
			return "is empty; leave it out or give it a value"
		}
		*field(t) = value
		return ""
	}
}

func duration(least, most time.Duration, field func(*target, *settings) *time.Duration) func(*target, *settings, string) string {
	return func(t *target, s *settings, value string) string {
		d, err := time.ParseDuration(value)
		if err != nil || d < least || d > most {
			return fmt.Sprintf("must be a time from %v to %v, such as %v", least, most, min(max(least, 200*time.Millisecond), most))
		}
		*field(t, s) = d
		return ""
	}
}

func number(least, most int64, power bool, field func(*target, *settings) *int64) func(*target, *settings, string) string {
	return func(t *target, s *settings, value string) string {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < least || n > most || power && n&(n-1) != 0 {
			kind := "number"
			if power {
				kind = "power of two"
			}
			return fmt.Sprintf("must be a %s from %d to %d", kind, least, most)
		}
		*field(t, s) = n
		return ""
	}
}

// forms says, for each scheme, how a URL is written.
var forms = map[string]struct {
	topology topology
	tls      bool
	form     string
}{
	"redis":           {single, false, "redis://user:password@host:port/database"},
	"rediss":          {single, true, "rediss://user:password@host:port/database"},
	"redis-sentinel":  {sentinels, false, "redis-sentinel://user:password@host1:port,host2:port/database?master=name"},
	"rediss-sentinel": {sentinels, true, "rediss-sentinel://user:password@host1:port,host2:port/database?master=name"},
	"redis-cluster":   {cluster, false, "redis-cluster://user:password@host1:port,host2:port"},
	"rediss-cluster":  {cluster, true, "rediss-cluster://user:password@host1:port,host2:port"},
}

// CheckURL returns what is wrong with a URL for [Open], an [*headgate.InvalidError]
// that lists every mistake, without looking at the files it names. It does not
// repeat what may be secret: passwords, or what could be the rest of one.
func CheckURL(text string) error {
	set := newSettings()
	_, err := parseURL(text, &set)
	return err
}

// DescribeURL is the URL without what may be secret in it, for logs: scheme,
// addresses, database and the name of the primary. It is "a store" if the URL is
// none that [Open] takes.
func DescribeURL(text string) string {
	set := newSettings()
	t, err := parseURL(text, &set)
	if err != nil {
		return "a store"
	}
	scheme, _, _ := strings.Cut(text, "://")
	u := url.URL{Scheme: scheme, Host: strings.Join(t.hosts, ",")}
	if t.topology != cluster {
		u.Path = "/" + strconv.Itoa(t.database)
	}
	if t.master != "" {
		u.RawQuery = url.Values{"master": {t.master}}.Encode()
	}
	return u.String()
}

// parseURL reads the URL of [Open]; what it says of the store goes to the
// settings. It is no URL by the letter: those name one host.
func parseURL(text string, set *settings) (*target, error) {
	var problems headgate.Problems
	bad := func(format string, args ...any) { problems.Add("", format, args...) }
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
		// What follows is the second half of a password that was cut in two.
		return nil, invalidURL("there is an @ behind the host; " + escape)
	}
	t := &target{
		topology: f.topology, tls: f.tls,
		clientName: "headgate", connectTimeout: defaultConnectTimeout, refresh: defaultRefresh,
		connections: 1, queue: defaultQueue, readBuffer: defaultBuffer, writeBuffer: defaultBuffer,
		given: make(map[string]bool),
	}
	if t.topology == cluster {
		t.queue = defaultClusterQueue
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		if t.topology != single && strings.Contains(authority[:at], "@") {
			bad("there is more than one @ before the end of the addresses: user and password stand once, before the first address; %s", escape)
		}
		user, password, _ := strings.Cut(authority[:at], ":")
		var err, err2 error
		t.user, err = url.PathUnescape(user)
		t.password, err2 = url.PathUnescape(password)
		if err != nil || err2 != nil {
			bad("the user or the password has a %% that does not begin an escaped byte; %s", escape)
			t.user = ""
		}
		authority = authority[at+1:]
	}
	t.hosts = hosts(authority, t.topology, bad)
	rest, fragment, _ := strings.Cut(rest, "#")
	if fragment != "" {
		bad("there is a # behind the host; %s", escape)
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

func invalidURL(text string) error { return headgate.Invalid(urlSubject, "", "%s", text) }

// hosts reads a list of addresses.
func hosts(list string, topology topology, bad func(string, ...any)) []string {
	standard := "6379"
	if topology == sentinels {
		standard = "26379"
	}
	if list == "" {
		bad("there is no host")
		return nil
	}
	var all []string
	for i, address := range strings.Split(list, ",") {
		host, port := address, standard
		bare := strings.Contains(address, ":") && !strings.HasPrefix(address, "[")
		if strings.Count(address, ":") == 1 || strings.HasPrefix(address, "[") && !strings.HasSuffix(address, "]") {
			var err error
			if host, port, err = net.SplitHostPort(address); err != nil {
				bad("address %d is not host:port", i+1)
				continue
			}
		}
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		n, err := strconv.Atoi(port)
		switch {
		case host == "":
			bad("address %d has no host", i+1)
		case strings.ContainsFunc(host, notInHost):
			bad("address %d has a host with signs that none has", i+1)
		case strings.Contains(host, ":") && (bare || net.ParseIP(host) == nil):
			bad("address %d is not host:port; an IPv6 address stands in brackets", i+1)
		case err != nil || n < 1 || n > 65535:
			bad("the port of address %d is not a number from 1 to 65535", i+1)
		default:
			all = append(all, net.JoinHostPort(host, strconv.Itoa(n)))
		}
	}
	if topology == single && len(all) > 1 {
		bad("there are %d addresses, must be one; several are for redis-sentinel:// and redis-cluster://", len(all))
	}
	return all
}

// notInHost reports signs that names and addresses of hosts do not have.
func notInHost(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._:", c)
}

func (t *target) readDatabase(path string, bad func(string, ...any)) {
	path = strings.Trim(path, "/")
	if path == "" {
		return
	}
	n, err := strconv.Atoi(path)
	switch {
	case err != nil || n < 0 || n > 1<<20:
		bad("the database is not a number from 0 on")
	case t.topology == cluster && n != 0:
		bad("the database is %d, but a cluster has only 0", n)
	}
	t.database = n
}

func (t *target) readParameters(query string, set *settings, bad func(string, ...any)) {
	values, err := url.ParseQuery(query)
	if err != nil {
		bad("what is behind the ? cannot be read: it has a %% that does not begin an escaped byte, or a ;")
		return
	}
	unknown := 0
	for _, name := range slices.Sorted(maps.Keys(values)) {
		given := values[name]
		i := slices.IndexFunc(parameters, func(p parameter) bool { return p.name == name })
		switch {
		case i < 0:
			unknown++ // not repeated: it may be the rest of a password
		case len(given) > 1:
			bad("%s is given %d times", name, len(given))
		default:
			t.given[name] = true
		}
	}
	if unknown > 0 {
		names := make([]string, len(parameters))
		for i := range parameters {
			names[i] = parameters[i].name
		}
		bad("%d of the parameters behind the ? are unknown; those that are known are %s", unknown, strings.Join(names, ", "))
	}
	for i := range parameters {
		if p := &parameters[i]; t.given[p.name] {
			if problem := p.set(t, set, values.Get(p.name)); problem != "" {
				bad("%s %s", p.name, problem)
			}
		}
	}
}

// agree reports parameters that do not go together.
func (t *target) agree(bad func(string, ...any)) {
	if t.topology == sentinels && t.master == "" {
		bad("master is not given: the name that the Sentinels know the primary by")
	}
	if t.topology != sentinels {
		for _, name := range []string{"master", "sentinel_user", "sentinel_password_file"} {
			if t.given[name] {
				bad("%s is for redis-sentinel:// only", name)
			}
		}
	}
	if t.topology == single && t.given["refresh"] {
		bad("refresh is for redis-sentinel:// and redis-cluster:// only: one server is always where it was")
	}
	if !t.tls {
		for _, name := range []string{"ca_file", "cert_file", "key_file", "server_name"} {
			if t.given[name] {
				bad("%s is for TLS, which begins with rediss in the scheme or tls=true", name)
			}
		}
	}
	if (t.certFile == "") != (t.keyFile == "") {
		bad("cert_file and key_file go together")
	}
	if t.password != "" && t.passwordFile != "" {
		bad("there are a password and a password_file; keep one")
	}
	if t.sentinelUser != "" && t.sentinelPasswordFile == "" {
		bad("sentinel_user needs a sentinel_password_file")
	}
	if t.user != "" && t.password == "" && t.passwordFile == "" {
		bad("there is a user without a password")
	}
}
