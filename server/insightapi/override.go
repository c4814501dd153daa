package insightapi

import (
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/policy"
)

// matchText writes conditions as "match" has them in a policy file, in one line, or returns ""
// if a file cannot say them. What Go quotes, YAML reads as the same text.
func matchText(conditions []policy.Condition) string {
	parts := make([]string, len(conditions))
	for i, c := range conditions {
		switch {
		case len(c.Hashes) > 0:
			parts[i] = "{ hash: " + strconv.Quote(c.Hashes[0]) + " }"
		case len(c.Networks) > 0:
			parts[i] = "{ network: " + strconv.Quote(c.Networks[0].String()) + " }"
		case !utf8.ValidString(c.Equals[0]):
			return ""
		case meansMore(c.Equals[0]):
			parts[i] = "{ equals: [" + strconv.Quote(c.Equals[0]) + "] }"
		default:
			parts[i] = strconv.Quote(c.Equals[0])
		}
		name := c.Entry
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" {
			name = strconv.Quote(name)
		}
		parts[i] = name + ": " + parts[i]
	}
	return "{ " + strings.Join(parts, ", ") + " }"
}

// meansMore reports whether "match" takes a text for more than itself.
func meansMore(text string) bool {
	_, err := netip.ParsePrefix(text)
	return err == nil || text == "present" || text == "absent" || strings.HasSuffix(text, "*")
}
