package docs

import (
	"strings"

	"github.com/headgate/headgate/policy/lint"
)

// warnings is the page of what lint warns of.
func warnings(string) ([]byte, error) {
	p := newPage("Warnings of lint", "policy/lint", `
A mistake keeps a policy file from loading; a warning does not. `+"`headgate lint`"+` prints both,
and a server logs the warnings when it starts and when it reloads. A code never changes its meaning.
[What lint warns of](../rules.md#what-lint-warns-of) says how warnings are found, and how one is
silenced with a reason.`)
	var rows [][]string
	for _, c := range lint.Codes() {
		rows = append(rows, []string{"[" + c.Code + "](#" + strings.ToLower(c.Code) + ")", c.About})
	}
	p.table([]string{"code", "what it says"}, rows)
	for _, c := range lint.Codes() {
		p.say("## %s\n\n", c.Code)
		p.prose(c.Why + " What to do: " + c.Remedy)
	}
	return p.bytes(), nil
}
