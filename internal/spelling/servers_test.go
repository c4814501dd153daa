package spelling_test

import (
	"testing"

	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/internal/spelling/spellingtest"
)

// What real servers were seen to read is among what the attacks suppose, and no path is
// read as another one than a server reads it as, whatever is known of the server.
func TestRealServers(t *testing.T) {
	t.Parallel()
	servers, targets, err := spellingtest.Servers()
	if err != nil {
		t.Fatal(err)
	}
	type question struct {
		raw   string
		forms spelling.Forms
	}
	asProtected := make(map[question]map[string]bool) // it may be read as what these rules protect
	may := func(raw string, forms spelling.Forms, rule string) bool {
		q := question{raw, forms}
		if asProtected[q] == nil {
			asProtected[q] = make(map[string]bool)
			for _, reading := range spellingtest.Readings(raw, forms) {
				asProtected[q][spellingtest.Protected(reading)] = true
			}
		}
		return asProtected[q][rule]
	}
	reached := 0
	for _, s := range servers {
		for _, target := range targets {
			read, raw := s.Read[target], spellingtest.PathOf(target)
			protected := read == "token" || read == "admin"
			if protected {
				reached++
			}
			for _, forms := range append(someForms(), s.Forms) {
				if forms&^s.Forms != 0 {
					continue // It is not true of the server.
				}
				among, beyond := may(raw, forms, read), spellingtest.Beyond(s.Name, target)
				if protected && !among && !beyond || beyond && among && forms == s.Forms {
					t.Errorf("%s reads %q as %s; among the readings by %b: %v, beyond them: %v", s.Name, target, read, forms, among, beyond)
					continue
				} else if beyond || !protected {
					continue
				}
				p, wrong := spelling.Read(raw, forms)
				if wrong == nil && spellingtest.Protected(p.Text) != read && (p.Kept == nil || spellingtest.Protected(p.Kept.Text) != read) {
					t.Errorf("%s reads %q as %s, and by %b it is read as %q", s.Name, target, read, forms, p.Text)
				}
			}
		}
	}
	if len(servers) < 11 || reached < 300 {
		t.Errorf("%d servers have answered %d requests as protected ones: the table is not whole", len(servers), reached)
	}
}
