package lint

import (
	"strings"

	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy"
)

// behind warns of rules for scripts of PHP if the policy does not say, by what is behind, what is
// done with paths that have more behind the script.
func (l *linter) behind() {
	known, _ := spelling.Behind(l.set.Behind()...)
	if known&spelling.CutPathInfo != 0 {
		return
	}
	for i := range l.rules {
		r := &l.rules[i]
		if script := scriptOf(r); script != "" {
			l.aboutField(r, "match")(Behind, "PHP serves %s with anything behind it, such as /x, and the policy does not say that PHP is behind; write behind: php", policy.Quote(script))
		}
	}
}

// scriptOf returns the first route among the rule's conditions that ends with a script of PHP.
func scriptOf(r *rule) string {
	for i := range r.Match {
		if c := &r.Match[i]; c.Entry == "route" && !c.Not {
			for _, v := range c.Equals {
				if strings.HasSuffix(v, ".php") {
					return v
				}
			}
		}
	}
	return ""
}
