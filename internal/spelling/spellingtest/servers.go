package spellingtest

import (
	_ "embed" // of the table
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/spelling"
)

// Server is a server that was asked what it reads in paths.
type Server struct {
	// Column is the name of its column: the name that the server has in [spelling.Servers],
	// and what tells several apart that have one name.
	Column string
	spelling.Server
	// Read has, by the target of a request, the name of the route that answered it:
	// "token", "script" and "admin", which are [Protected], or "other". It is "refused" if none
	// did, and "redirect" if the server sends clients to another path.
	Read map[string]string
}

// Table is the text that [Servers] reads: a line for each target, quoted as in Go, and a
// column for each server. Go test ./test/spelling -update writes it.
//
//go:embed servers.tsv
var Table string

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
	all := spelling.Servers()
	for _, column := range strings.Split(lines[0], "\t")[1:] {
		name, _, _ := strings.Cut(column, " ")
		i := slices.IndexFunc(all, func(s spelling.Server) bool { return s.Name == name })
		if i < 0 {
			return nil, nil, fmt.Errorf("spellingtest: nothing is known of %q", column)
		}
		servers = append(servers, Server{column, all[i], make(map[string]string)})
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
