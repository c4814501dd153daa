package postgres

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/cas"
)

// The defaults of a store.
const (
	// DefaultTimeout is the deadline of a call.
	DefaultTimeout = 500 * time.Millisecond
	// DefaultConnections is how many connections a store that [Open] makes has at
	// most.
	DefaultConnections = 8
	// connectTimeout is how long Open and new connections wait for the server, unless
	// connect_timeout says otherwise.
	connectTimeout = 2 * time.Second
)

// Option changes a [Store] that is being made.
type Option func(*settings)

type settings struct {
	table    string
	durable  bool
	unlogged bool
	create   bool
	timeout  time.Duration
	options  []cas.Option
}

// Table keeps the counters in another table: a name of small letters, digits and
// underscores, or a schema and a name with a dot between them, 59 bytes each at most.
func Table(name string) Option { return func(s *settings) { s.table = name } }

// Prefix keeps the counters under another prefix, so that several installations
// can share a table: up to 64 bytes.
func Prefix(prefix string) Option { return with(cas.Prefix(prefix)) }

// Part keeps the store's counters apart from those of other stores of the same
// installation: up to 64 bytes.
func Part(name string) Option {
	return with(cas.Part(name))
}

// Timeout sets the deadline of each call: more than zero.
func Timeout(d time.Duration) Option {
	return func(s *settings) {
		s.timeout = d
		s.options = append(s.options, cas.Timeout(d))
	}
}

// MaxPending bounds how many calls may be without an answer at a time, 1 to 2^20;
// more are refused at once with [headgate.ErrUnavailable].
func MaxPending(calls int) Option { return with(cas.MaxPending(calls)) }

// Durable makes every call wait until what it charged is on the server's disk.
func Durable() Option { return func(s *settings) { s.durable = true } }

// Unlogged makes Open create an unlogged table, if there is no table yet; see [Migration].
func Unlogged() Option { return func(s *settings) { s.unlogged = true } }

// NoCreate keeps Open from creating the table; see [Migration].
func NoCreate() Option { return func(s *settings) { s.create = false } }

// Clock makes the store decide by the given clock, in microseconds since the Unix
// epoch, instead of the server's: for tests, and to replay recorded traffic. Rows that
// have expired are then removed only by [Store.Sweep].
func Clock(micros func() int64) Option { return with(cas.Clock(micros)) }

func with(o cas.Option) Option {
	return func(s *settings) { s.options = append(s.options, o) }
}

func newSettings() settings {
	return settings{table: DefaultTable, create: true, timeout: DefaultTimeout, options: []cas.Option{cas.Timeout(DefaultTimeout)}}
}

func (s *settings) check() error {
	if !names.MatchString(s.table) {
		return headgate.Invalid("postgres store", "table",
			"the table is %q, must be a name of small letters, digits and underscores, of at most 59 bytes, or a schema and a name with a dot between them", s.table)
	}
	return nil
}

const (
	form    = "write postgres://user:password@host:port/database?sslmode=verify-full"
	escapes = "in a password, write / ? # @ % as %2F %3F %23 %40 %25"
)

// parseURL reads the URL of [Open]. Parameters of the store go to the settings, all others to
// the driver. Errors do not repeat what may be secret.
func parseURL(text string, set *settings) (*pgxpool.Config, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	if scheme != "postgres" && scheme != "postgresql" {
		return nil, invalidURL("it does not begin with postgres:// or postgresql://; " + form)
	}
	base, query, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, invalidURL("what follows the ? cannot be read; " + form)
	}
	// An @ anywhere else belongs to a password that was not escaped. The driver would take a
	// part of it for a host, a database or a parameter, and show it.
	authority, path, _ := strings.Cut(base, "/")
	misplaced := strings.Count(authority, "@") > 1 || strings.Contains(path, "@")
	for name := range values {
		misplaced = misplaced || strings.Contains(name, "@")
	}
	if misplaced {
		return nil, invalidURL("it has an @ where none can be: " + escapes + "; " + form)
	}
	problems := set.parameters(values)
	if values.Get("connect_timeout") == "" {
		values.Set("connect_timeout", strconv.Itoa(int(connectTimeout/time.Second)))
	}
	config, err := pgxpool.ParseConfig("postgres://" + base + "?" + values.Encode())
	if err != nil {
		// The driver's error is not shown: it may repeat a password whose characters cut the
		// URL in two.
		problems.Add("", "the driver cannot read it: %s; %s", escapes, form)
	}
	if err := problems.Err(urlSubject); err != nil {
		return nil, err
	}
	if !values.Has("pool_max_conns") {
		config.MaxConns = DefaultConnections
	}
	if _, named := config.ConnConfig.RuntimeParams["application_name"]; !named {
		config.ConnConfig.RuntimeParams["application_name"] = "headgate"
	}
	config.BeforeConnect = inTurn(connectTimeout)
	// A pooler may pass on notifications for others, and the driver would keep them.
	config.ConnConfig.OnNotification = ignore
	return config, nil
}

// parameters takes the store's own parameters out of the values.
func (s *settings) parameters(values url.Values) (problems headgate.Problems) {
	text := func(name string, set func(string) string) {
		if values.Has(name) {
			if problem := set(values.Get(name)); problem != "" {
				problems.Add(name, "%s %s", name, problem)
			}
			values.Del(name)
		}
	}
	flag := func(name string, set func(bool)) {
		text(name, func(value string) string {
			if value != "true" && value != "false" {
				return "must be true or false"
			}
			set(value == "true")
			return ""
		})
	}
	text("table", func(value string) string { s.table = value; return "" })
	text("prefix", func(value string) string { Prefix(value)(s); return "" })
	text("timeout", func(value string) string {
		d, err := time.ParseDuration(value)
		if err != nil || d < time.Millisecond || d > time.Minute {
			return "must be a time from 1ms to 1m, such as 100ms"
		}
		Timeout(d)(s)
		return ""
	})
	text("max_pending", func(value string) string {
		n, err := strconv.Atoi(value)
		if err != nil {
			return "must be a number"
		}
		MaxPending(n)(s)
		return ""
	})
	flag("durable", func(on bool) { s.durable = on })
	flag("unlogged", func(on bool) { s.unlogged = on })
	flag("create", func(on bool) { s.create = on })
	return problems
}

// urlSubject is the subject of every error about a URL.
const urlSubject = "postgres URL"

func invalidURL(text string) error { return headgate.Invalid(urlSubject, "", "%s", text) }

// CheckURL returns what is wrong with a URL for [Open], an [*headgate.InvalidError]
// that lists every mistake. It does not repeat what may be secret.
func CheckURL(text string) error {
	set := newSettings()
	if _, err := parseURL(text, &set); err != nil {
		return err
	}
	return set.check()
}

// DescribeURL returns the address and the database of the URL, for logs, without what may be
// secret. It returns "a store" if [Open] does not accept the URL.
func DescribeURL(text string) string {
	set := newSettings()
	config, err := parseURL(text, &set)
	if err != nil {
		return "a store"
	}
	return describe(config)
}

func describe(config *pgxpool.Config) string {
	c := config.ConnConfig
	return fmt.Sprintf("postgres://%s/%s", net(c.Host, c.Port), c.Database)
}
