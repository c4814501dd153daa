package spellingtest

import (
	_ "embed" // of the table
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/spelling"
)

// Server is a server that was asked what it reads in paths.
type Server struct {
	Name string
	// Forms are those that are true of it.
	Forms spelling.Forms
	// Read has, by the target of a request, the name of the route that answered it:
	// "token" and "admin", which are [Protected], or "other". It is "refused" if none
	// did, and "redirect" if the server sends clients to another path.
	Read map[string]string
}

// Table is the text that [Servers] reads: a line for each target, quoted as in Go, and a
// column for each server. Go test ./test/spelling -update writes it.
//
//go:embed servers.tsv
var Table string

// forms are those that are true of the servers in the table, by its names.
var forms = map[string]spelling.Forms{
	"nginx":     decodesOnce | spelling.LeadingSlashes | spelling.KeptParameters,
	"tomcat":    servlets,
	"jetty":     servlets,
	"spring":    servlets,
	"express4":  raw,
	"express5":  raw,
	"node":      decodesOnce | spelling.EncodedSlashes | spelling.KeptParameters,
	"starlette": decodesOnce | spelling.LeadingSlashes | spelling.KeptParameters,
	"rails":     raw,
	// Under php -S a second slash is nothing special; parse_url takes it for a host.
	"php": decodesOnce | spelling.KeptParameters,
	"go":  raw,
}

const (
	decodesOnce = spelling.DoubleEncoding
	// servlets refuse what EncodedSlashes is about.
	servlets = decodesOnce | spelling.EncodedSlashes | spelling.LeadingSlashes | spelling.CutParameters
	raw      = decodesOnce | spelling.EncodedSlashes | spelling.LeadingSlashes | spelling.KeptParameters
)

// Beyond reports whether a server takes a path for a protected one that no reading of it
// is: it leaves out what others go by. It is to be named in the rules.
func Beyond(server, target string) bool {
	switch target {
	case "/V1/token":
		return server == "express4" || server == "express5"
	case "/v1/token/":
		return server == "express4" || server == "express5" || server == "rails"
	case "/v1/token.json":
		return server == "rails"
	case "/admin", "/admin;%2f..%2f..%2fx":
		return server == "tomcat" || server == "jetty" || server == "spring"
	}
	return false
}

// PathOf is the path in a target, as it came.
func PathOf(target string) string {
	if _, rest, ok := strings.Cut(target, "://"); ok && target[0] != '/' {
		host := strings.IndexAny(rest, `/?#\`)
		if host < 0 {
			return "/"
		}
		target = rest[host:]
	}
	path, _, _ := strings.Cut(target, "?")
	return path
}

// Servers returns the servers in the table, and the targets that they were asked.
func Servers() (servers []Server, targets []string, err error) {
	lines := strings.Split(strings.TrimSuffix(Table, "\n"), "\n")
	for _, name := range strings.Split(lines[0], "\t")[1:] {
		servers = append(servers, Server{name, forms[name], make(map[string]string)})
	}
	for i, line := range lines[1:] {
		columns := strings.Split(line, "\t")
		target, err := strconv.Unquote(columns[0])
		if err != nil || len(columns)-1 > len(servers) {
			return nil, nil, fmt.Errorf("spellingtest: line %d of the table is %q", i+2, line)
		}
		targets = append(targets, target)
		for j, read := range columns[1:] {
			servers[j].Read[target] = read
		}
	}
	return servers, targets, nil
}
