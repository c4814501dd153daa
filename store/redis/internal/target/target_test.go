package target

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
)

func TestParse(t *testing.T) {
	tests := []struct {
		url  string
		want Target
	}{
		{"redis://localhost", Target{Hosts: []string{"localhost:6379"}}},
		{"redis://127.0.0.1:7000/3", Target{Hosts: []string{"127.0.0.1:7000"}, database: 3}},
		{"redis://[::1]:7000/", Target{Hosts: []string{"[::1]:7000"}}},
		{"redis://[fe80::1]", Target{Hosts: []string{"[fe80::1]:6379"}}},
		{"redis://:secret@h", Target{Hosts: []string{"h:6379"}, password: "secret"}},
		{"redis://ann:p%40ss%2Fw@h:1/15", Target{Hosts: []string{"h:1"}, user: "ann", password: "p@ss/w", database: 15}},
		{"redis://ann:p@ss@h", Target{Hosts: []string{"h:6379"}, user: "ann", password: "p@ss"}},
		{"rediss://h:6380", Target{Hosts: []string{"h:6380"}, tls: true}},
		{"redis://h?tls=true&server_name=x&ca_file=/a+b", Target{Hosts: []string{"h:6379"}, tls: true, serverName: "x", caFile: "/a b"}},
		{"rediss://h?cert_file=c&key_file=k", Target{Hosts: []string{"h:6379"}, tls: true, certFile: "c", keyFile: "k"}},
		{
			"redis-sentinel://u:p@a,b:1,[::1]/2?master=main&sentinel_user=s&sentinel_password_file=f&refresh=5s",
			Target{Topology: Sentinels, Hosts: []string{"a:26379", "b:1", "[::1]:26379"}, user: "u", password: "p", database: 2, Master: "main", sentinelUser: "s", sentinelPasswordFile: "f", refresh: 5 * time.Second},
		},
		{"rediss-sentinel://a?master=m", Target{Topology: Sentinels, tls: true, Hosts: []string{"a:26379"}, Master: "m"}},
		{"redis-cluster://a,b:7000", Target{Topology: Cluster, Hosts: []string{"a:6379", "b:7000"}}},
		{"redis-cluster://a/0", Target{Topology: Cluster, Hosts: []string{"a:6379"}}},
		{"rediss-cluster://a?password_file=f&connections=4&queue=1024&read_buffer=4096&write_buffer=8192", Target{Topology: Cluster, tls: true, Hosts: []string{"a:6379"}, passwordFile: "f", connections: 4, Queue: 1024, readBuffer: 4096, writeBuffer: 8192}},
		{"redis://h?connect_timeout=300ms&client_name=me", Target{Hosts: []string{"h:6379"}, ConnectTimeout: 300 * time.Millisecond, clientName: "me"}},
	}
	for _, test := range tests {
		set := Settings{}
		got, err := Parse(test.url, &set)
		if err != nil {
			t.Errorf("%s: %v", test.url, err)
			continue
		}
		want := test.want
		want.scheme, _, _ = strings.Cut(test.url, "://")
		fill(&want.clientName, "headgate")
		fill(&want.ConnectTimeout, time.Second)
		fill(&want.refresh, 2*time.Second)
		fill(&want.connections, 1)
		fill(&want.readBuffer, 64<<10)
		fill(&want.writeBuffer, 64<<10)
		fill(&want.Queue, 1<<14)
		if want.Topology == Cluster && want.Queue == 1<<14 {
			want.Queue = 1 << 12
		}
		got.given = nil
		if !reflect.DeepEqual(*got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", test.url, *got, want)
		}
	}
}

func fill[T comparable](field *T, otherwise T) {
	var zero T
	if *field == zero {
		*field = otherwise
	}
}

// TestNoClientName: what connections are called can be left out.
func TestNoClientName(t *testing.T) {
	set := Settings{}
	if got, err := Parse("redis://h?client_name=none", &set); err != nil || got.clientName != "" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestURLSettings: a URL says something of the store as well.
func TestURLSettings(t *testing.T) {
	set := Settings{}
	if _, err := Parse("redis://h?prefix=b%3A&max_pending=9&combine_from=0", &set); err != nil {
		t.Fatal(err)
	}
	if set.Prefix != "b:" || set.MaxPending != 9 || set.CombineFrom != 0 {
		t.Errorf("got %+v", set)
	}
}

func TestParseMistakes(t *testing.T) {
	tests := []struct{ url, want string }{
		{"", "does not begin with"},
		{"http://h", "does not begin with"},
		{"localhost:6379", "does not begin with"},
		{"redis://", "there is no host; write redis://user:"},
		{"redis://h/x", "not a number from 0"},
		{"redis://h/-1", "not a number from 0"},
		{"redis://h?db=1", "1 of the parameters behind the ? are unknown; those that are known are ca_file, cert_file"},
		{"redis://user:sec ret@h:y", "the port of address 1 is not a number from 1 to 65535"},
		{"redis://h:0", "from 1 to 65535"},
		{"redis://user:top/secret@h", "there is an @ behind the host; in a password, write / ? # @ % as %2F"},
		{"redis://user:top?secret@h", "there is an @ behind the host"},
		{"redis://user:top#secret@h", "there is an @ behind the host"},
		{"redis://user:secret%@h", "%% that does not begin an escaped byte"},
		{"redis://user@h", "a user without a password"},
		{"redis://h#f", "there is a # behind the host"},
		{"redis://a,b", "there are 2 addresses, must be one"},
		{"redis://::1:6379", "address 1 is not host:port; an IPv6 address stands in brackets"},
		{"redis://[::1", "address 1 is not host:port"},
		{"redis-cluster://a,,b", "address 2 has no host"},
		{"redis-cluster://a/1", "the database is 1, but a cluster has only 0"},
		{"redis-sentinel://a", "master is not given"},
		{"redis-sentinel://a?master=", "master is empty"},
		{"redis-sentinel://a?master=m&sentinel_user=u", "sentinel_user needs a sentinel_password_file"},
		{"redis://a?master=m", "master is for redis-sentinel:// only"},
		{"redis://a?refresh=1s", "refresh is for"},
		{"redis://a?connect_timeout=1s&connect_timeout=2s", "connect_timeout is given 2 times"},
		{"redis://a?connect_timeout=soon", "connect_timeout must be a time from 10ms to 1m0s"},
		{"redis://a?connect_timeout=2m", "connect_timeout must be a time from 10ms to 1m0s"},
		{"redis://a?queue=1000", "queue must be a power of two from 256 to 262144"},
		{"redis://a?connections=9", "connections must be a power of two from 1 to 8"},
		{"redis://a?read_buffer=x", "read_buffer must be a number from 1024"},
		{"redis://a?tls=yes", "tls must be true or false"},
		{"rediss://a?tls=false", "tls is false, but the scheme asks for it"},
		{"redis://a?ca_file=x", "ca_file is for TLS"},
		{"rediss://a?cert_file=x", "cert_file and key_file go together"},
		{"redis://:secret@a?password_file=x", "a password and a password_file; keep one"},
		{"redis-cluster://user:secret@a,user:secret@b", "user and password stand once, before the first address"},
		{"redis://a?client_name=head%20gate", "client_name must be letters, digits and signs of ASCII, without spaces"},
		{"redis://a?client_name=", "client_name must be"},
		{"redis://a?x=%zz", "what is behind the ? cannot be read"},
	}
	for _, test := range tests {
		_, err := Parse(test.url, new(Settings))
		if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), strings.ReplaceAll(test.want, "%%", "%")) {
			t.Errorf("%s: got %v, want %q", test.url, err, test.want)
			continue
		}
		if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "sec ret") {
			t.Errorf("%s: the error repeats the password: %v", test.url, err)
		}
	}
	_, err := Parse("redis-cluster://a:b/7?master=m&connect_timeout=0s", new(Settings))
	for _, want := range []string{"port of address 1", "the database is 7", "master is for", "connect_timeout must be", "write redis-cluster://"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want all mistakes, such as %q", err, want)
		}
	}
}

// described is what a URL is called in logs, or a word if it is none.
func described(text string) string {
	t, err := Parse(text, new(Settings))
	if err != nil {
		return "a store"
	}
	return t.String()
}

func TestString(t *testing.T) {
	for given, want := range map[string]string{
		"redis://user:geheim@10.0.0.7/2?connections=2":                                 "redis://10.0.0.7:6379/2",
		"rediss://:geheim@cache.example/":                                              "rediss://cache.example:6379/0",
		"redis-sentinel://u:geheim@a,b:1/3?master=main&sentinel_password_file=/geheim": "redis-sentinel://a:26379,b:1/3?master=main",
		"rediss-cluster://u:geheim@a,b":                                                "rediss-cluster://a:6379,b:6379",
		"redis://u:%zz@host":                                                           "a store",
	} {
		if got := described(given); got != want {
			t.Errorf("%q is called %q, want %q", given, got, want)
		}
	}
}

// TestParametersAreDocumented: all of them, and no others.
func TestParametersAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| parameter | default | meaning |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var got, want []string
	for line := range strings.Lines(table) {
		names, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		for name := range strings.SplitSeq(names, ",") {
			got = append(got, strings.Trim(name, " `"))
		}
	}
	for _, p := range parameters {
		want = append(want, p.name)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("docs/redis.md has the parameters %v, the code %v", got, want)
	}
}

// TestClientOptions: whatever the topology, no call is sent twice, and there is a
// deadline for connecting and for silence.
func TestClientOptions(t *testing.T) {
	for _, url := range []string{"redis://h", "rediss-sentinel://h?master=m", "redis-cluster://h"} {
		set := Settings{}
		target, err := Parse(url, &set)
		if err != nil {
			t.Fatal(err)
		}
		o, err := target.options(time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if !o.DisableRetry || o.ConnWriteTimeout != time.Second || o.Dialer.Timeout != time.Second || o.Dialer.KeepAlive != time.Second {
			t.Errorf("%s: got %+v", url, o)
		}
		if target.Topology == Sentinels && o.TLSConfig == nil {
			t.Errorf("%s: got %+v for Sentinels", url, o)
		}
	}
}

func TestFilesOfAURL(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	empty, two, long, good := write("empty", "\n"), write("two", "a\nb"), write("long", strings.Repeat("x", 4097)), write("good", "geheim\n")
	tests := []struct{ query, want string }{
		{"password_file=" + dir + "/none", "password_file: open " + dir + "/none: no such file"},
		{"password_file=" + empty, "is empty"},
		{"password_file=" + two, "more than one line"},
		{"password_file=" + long, "more than 4096 bytes"},
		{"ca_file=" + good, "no certificate in PEM form"},
		{"cert_file=" + good + "&key_file=" + good, "cert_file and key_file: "},
		{"ca_file=" + dir + "/none&password_file=" + dir + "/none", "ca_file: open"},
	}
	for _, test := range tests {
		_, err := connectTo(t, "rediss://h?"+test.query)
		if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: got %v, want %q", test.query, err, test.want)
		}
	}
	set := Settings{}
	target, err := Parse("redis-sentinel://h?master=m&password_file="+good+"&sentinel_password_file="+good, &set)
	if err != nil {
		t.Fatal(err)
	}
	if o, err := target.options(time.Second); err != nil || o.Password != "geheim" {
		t.Errorf("the password is %q, %v", o.Password, err)
	}
}

// connectTo connects to what a URL names.
func connectTo(t *testing.T, url string) (rueidis.Client, error) {
	t.Helper()
	to, err := Parse(url, new(Settings))
	if err != nil {
		t.Fatal(err)
	}
	client, _, err := to.Connect(t.Context(), time.Second, "hg:")
	return client, err
}

func FuzzParse(f *testing.F) {
	f.Add("redis://user:password@127.0.0.1:6379/0")
	f.Add("rediss://[::1]")
	f.Add("redis-sentinel://u:p@a,b:1/2?master=m&refresh=1s")
	f.Add("redis-cluster://a,b?tls=true&ca_file=x")
	f.Fuzz(func(t *testing.T, text string) {
		set := Settings{}
		target, err := Parse(text, &set)
		if err != nil {
			return
		}
		if len(target.Hosts) == 0 || target.database < 0 || target.Queue&(target.Queue-1) != 0 {
			t.Errorf("%q was read as %+v", text, target)
		}
		if target.passwordFile+target.sentinelPasswordFile+target.caFile+target.certFile == "" {
			if _, err := target.options(time.Second); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
		if _, err := Parse(described(text), new(Settings)); err != nil {
			t.Errorf("%q is called %q: %v", text, described(text), err)
		}
	})
}
