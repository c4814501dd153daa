package topologies

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// put has a file of that name hold the text, from one moment to the next.
func put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

// hangUp ends all connections of others to the server.
func hangUp(t *testing.T, s *servers.Server) {
	t.Helper()
	stores.Do(t, s, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
}

// fails waits until the store is refused with the words.
func fails(t *testing.T, store headgate.Store, words string) {
	t.Helper()
	checks := []headgate.Check{{Rule: headgate.MustRule("r", headgate.PerSecond(1_000_000)), Key: "k"}}
	stores.Until(t, "calls fail with "+words, func() bool {
		_, err := store.Take(t.Context(), headgate.OpTake, checks, nil)
		return err != nil && strings.Contains(err.Error(), words)
	})
}

// passwordChanges: a password that changes while the store is open is read when
// connections are made, and nothing has to be restarted.
func passwordChanges(t *testing.T, c *servers.Cluster) {
	file := filepath.Join(t.TempDir(), "password")
	s := servers.Start(t, c.Nodes[0].Kind())
	for name, target := range map[string]struct {
		url   string
		nodes []*servers.Server
	}{
		"single":  {"redis://headgate@" + s.Addr(), []*servers.Server{s}},
		"cluster": {strings.Replace(c.URL(), "://", "://headgate@", 1), c.Nodes},
	} {
		t.Run(name, func(t *testing.T) {
			password := func(word string) {
				for _, node := range target.nodes {
					stores.Do(t, node, "ACL", "SETUSER", "headgate", "reset", "on", ">"+word, "~*", "&*", "+@all")
					hangUp(t, node)
				}
			}
			password("first")
			put(t, file, "first\n")
			store := stores.OpenURL(t, target.url+"?password_file="+url.QueryEscape(file))
			limiter := headgate.New(store, headgate.MustRule("r", headgate.PerSecond(1_000_000)))
			stores.Recovers(t, limiter)
			password("second")
			fails(t, store, "WRONGPASS")
			put(t, file, "second\n")
			stores.Recovers(t, limiter)
			// A file that is not there just now changes nothing.
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			for _, node := range target.nodes {
				hangUp(t, node)
			}
			stores.Recovers(t, limiter)
		})
	}
}

// TestSentinelPasswordsChange: so it is behind Sentinels, with the password of the servers
// and with that of the Sentinels, each of which is shown to its own kind only: after a
// failover the new primary is found.
func TestSentinelPasswordsChange(t *testing.T) {
	oneKind(t, func(t *testing.T, kind servers.Kind) {
		dir := t.TempDir()
		c := servers.StartSentinel(t, kind)
		// user lets a user in by the password from now on, and ends his connections.
		user := func(all []*servers.Server, name, password string) {
			for _, s := range all {
				stores.Do(t, s, "ACL", "DELUSER", name)
				stores.Do(t, s, "ACL", "SETUSER", name, "on", ">"+password, "~*", "&*", "+@all")
			}
		}
		own, watching := filepath.Join(dir, "own"), filepath.Join(dir, "watching")
		user(c.Nodes, "headgate", "first")
		user(c.Sentinels, "watch", "one")
		put(t, own, "first\n")
		put(t, watching, "one\n")
		u := strings.Replace(c.URL(), "://", "://headgate@", 1) + "&" + url.Values{
			"password_file": {own}, "sentinel_user": {"watch"}, "sentinel_password_file": {watching}, "refresh": {"200ms"},
		}.Encode()
		store := stores.OpenURL(t, u)
		limiter := headgate.New(store, headgate.MustRule("r", headgate.PerSecond(1_000_000)))
		stores.Recovers(t, limiter)
		user(c.Nodes, "headgate", "second")
		fails(t, store, "WRONGPASS")
		put(t, own, "second\n")
		stores.Recovers(t, limiter)
		put(t, watching, "two\n")
		user(c.Sentinels, "watch", "two")
		old := c.Primary()
		old.Kill()
		primary := c.AwaitFailover(old)
		stores.Recovers(t, limiter)
		for stranger, all := range map[string][]*servers.Server{"headgate": c.Sentinels, "watch": {primary}} {
			for _, s := range all {
				refused, err := s.Do(t.Context(), "ACL", "LOG")
				if err != nil || strings.Contains(fmt.Sprint(refused), "username "+stranger) {
					t.Errorf("%s has refused %v, %v; want nobody of the name %s", s.Addr(), refused, err, stranger)
				}
			}
		}
	})
}

// TestCertificateIsRenewed: so it is with a client's certificate.
func TestCertificateIsRenewed(t *testing.T) {
	eachKind(t, func(t *testing.T, kind servers.Kind) {
		ours, strangers := servers.NewCertificates(t), servers.NewCertificates(t)
		s := servers.Start(t, kind, servers.TLS(ours))
		dir := t.TempDir()
		cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
		show := func(c *servers.Certificates) {
			for from, to := range map[string]string{c.ClientCert: cert, c.ClientKey: key} {
				text, err := os.ReadFile(from)
				if err != nil {
					t.Fatal(err)
				}
				put(t, to, string(text))
			}
		}
		show(ours)
		u := "rediss://" + s.Addr() + "?" + url.Values{"ca_file": {ours.CA}, "cert_file": {cert}, "key_file": {key}}.Encode()
		store := stores.OpenURL(t, u)
		limiter := headgate.New(store, headgate.MustRule("r", headgate.PerSecond(1_000_000)))
		stores.Recovers(t, limiter)
		show(strangers)
		hangUp(t, s)
		fails(t, store, "")
		show(ours)
		stores.Recovers(t, limiter)
		put(t, key, "nothing") // between one file and the other
		hangUp(t, s)
		stores.Recovers(t, limiter)
	})
}
