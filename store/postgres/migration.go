package postgres

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

// DefaultTable is the name of the table unless [Table] sets another.
const DefaultTable = "headgate"

// Migration returns the SQL that creates the table and its index if they do not exist:
// several statements, to be run in one transaction. The table is a name, or a schema and a name
// with a dot between them. An unlogged table has no write-ahead log. It is faster, but it is
// empty after a crash of the server, and replicas do not have it.
//
// There is no index on expires, since every charge would have to update it.
func Migration(table string, unlogged bool) string {
	kind := "TABLE"
	if unlogged {
		kind = "UNLOGGED TABLE"
	}
	parts := strings.Split(table, ".")
	return fmt.Sprintf(`CREATE %s IF NOT EXISTS %s (
    k       bytea  PRIMARY KEY,
    v       bytea  NOT NULL,
    expires bigint NOT NULL,  -- may be removed from then on, in µs since 1970
    due     bigint            -- units are to be given back then
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS %s ON %s (due) WHERE due IS NOT NULL;
`, kind, quoted(table), pgx.Identifier{parts[len(parts)-1] + "_due"}.Sanitize(), quoted(table))
}

// quoted returns the table as it is written in SQL.
func quoted(table string) string { return pgx.Identifier(strings.Split(table, ".")).Sanitize() }

// names matches the names that a table may have. They need no quotes, and leave room for the
// suffix of the index's name.
var names = regexp.MustCompile(`^([a-z_][a-z0-9_]{0,58}\.)?[a-z_][a-z0-9_]{0,58}$`)
