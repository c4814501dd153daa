package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// TestReference: the page has every command and flag. A flag that commands have in common is printed
// once, so it must be the same in all of them.
func TestReference(t *testing.T) {
	parser, err := kong.New(&root{}, append(make(values).options(), kong.Vars{"default_server": defaultServer})...)
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	if err := (reference{}).Run(&call{stdout: &page, model: parser.Model}); err != nil {
		t.Fatal(err)
	}
	common := make(map[string]*kong.Flag)
	commandsOf(parser.Model.Node, "", func(words string, n *kong.Node) {
		if !strings.Contains(page.String(), "\n## "+parser.Model.Name+words+"\n") {
			t.Errorf("the page lacks%s", words)
		}
		for _, f := range slices.Concat(n.AllFlags(true)...) {
			if f.Name != "help" && !strings.Contains(page.String(), "\n"+flagItem(f)+"\n") {
				t.Errorf("the page lacks --%s of%s", f.Name, words)
			}
			if f.Group == nil {
				continue
			}
			key := f.Group.Key + " " + f.Name
			if other := common[key]; other != nil && (other.Help != f.Help || other.Default != f.Default || !slices.Equal(other.Envs, f.Envs)) {
				t.Errorf("--%s of%s differs from the flag of the group %s in another command", f.Name, words, f.Group.Key)
			}
			common[key] = f
		}
	})
}
