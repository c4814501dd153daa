package servers

import (
	"fmt"
	"strings"
)

// settings are what a server is started with.
type settings struct {
	directives [][]string
	password   string
}

// Option changes how a server is started.
type Option func(*settings)

// Directive adds a line to the server's configuration file, such as
// Directive("maxmemory", "10mb"). It comes after the launcher's own lines, so
// that it overrides them; a later Directive of the same name overrides an earlier
// one.
func Directive(name string, values ...string) Option {
	return func(s *settings) {
		s.directives = append(s.directives, append([]string{name}, values...))
	}
}

// Password makes the server ask for a password. [Server.URL] contains it.
func Password(password string) Option {
	return func(s *settings) {
		s.password = password
		s.directives = append(s.directives, []string{"requirepass", password})
	}
}

// MaxMemory bounds the server's memory to so many bytes; a write beyond it is an
// error, and nothing is evicted.
func MaxMemory(bytes int64) Option {
	return func(s *settings) {
		s.directives = append(s.directives,
			[]string{"maxmemory", fmt.Sprint(bytes)},
			[]string{"maxmemory-policy", "noeviction"})
	}
}

// config is the server's configuration file: reachable from this machine only,
// in the foreground, with its files in dir, and with nothing written to disk.
func (s *settings) config(dir string, port int) string {
	lines := [][]string{
		{"bind", loopback},
		{"protected-mode", "yes"},
		{"port", fmt.Sprint(port)},
		{"dir", dir},
		{"daemonize", "no"},
		{"save", ""},
		{"appendonly", "no"},
	}
	var b strings.Builder
	for _, line := range append(lines, s.directives...) {
		b.WriteString(line[0])
		for _, value := range line[1:] {
			b.WriteByte(' ')
			b.WriteString(quote(value))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// quote writes a value so that the server's parser of configuration lines reads
// it back as it is, spaces, quotes and all.
func quote(value string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(value) {
		switch c := value[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
