package postgres

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

// DefaultTable is the table unless told otherwise.
const DefaultTable = "headgate"

// Migration is the SQL that makes the table and its index, if they are not there:
// several statements, to be run in one transaction. The table is a name, or a schema
// and a name with a dot between them. An unlogged table is written without a log: it
// is faster, it is empty after a crash of the server, and replicas do not have it.
//
// There is no index on expires, or every charge would have to change it.
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

// quoted is the table as it is written in SQL.
func quoted(table string) string { return pgx.Identifier(strings.Split(table, ".")).Sanitize() }

// names are what a table may be called: no quotes are ever needed, and the index's name
// still fits.
var names = regexp.MustCompile(`^([a-z_][a-z0-9_]{0,58}\.)?[a-z_][a-z0-9_]{0,58}$`)
