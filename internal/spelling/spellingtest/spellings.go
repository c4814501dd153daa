package spellingtest

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/spelling"
)

// parts are what [Spellings] are made of: those of protected paths, and what servers
// disagree about.
var parts = []string{
	"/", "/", "/", "v1", "token", "admin", "x", "y",
	"%2f", "%2F", "%252f", "%5c", "%5C", `\`, "%255c", "//", "/%2f",
	".", "..", "%2e", "%2e%2e", "%252e%252e", ".%2e", "/../", "/./", "..;", "%c0%ae", "%c0%af",
	";", ";a=b", "%3b", "%3B", "%253b", ";/", "#", "%23", "%2523", "?", "%3f", "%253f",
	"%", "%zz", "%25", "%2", "%25zz", "%00", "%2500", "%09", "%0a", "\t",
	"%61dmin", "%2561dmin", "%76%31", "toke%6e", "toke%256e", "ad%4din", "caf%C3%A9", "%20", "+", "*", ":", "@", "=", "~",
	"%ff", "\x80", "%c3", "index.php", "/index.php", ".php", "script.php", ".json", "V", "TOKEN", "%41",
}

// Spellings returns a path: one that is protected, and changed here and there.
func Spellings(random *rand.Rand) string {
	pieces := []string{"/", "v1", "/", "token"}
	switch random.IntN(5) {
	case 0, 1:
		pieces = []string{"/", "admin", "/", "x"}
	case 2:
		pieces = []string{"/", "script.php"}
	}
	for range 1 + random.IntN(1+random.IntN(5)) {
		part := parts[random.IntN(len(parts))]
		i := min(random.IntN(len(pieces)+3), len(pieces)) // the end is worth most
		switch {
		case i == len(pieces) || random.IntN(3) > 0:
			pieces = append(pieces[:i:i], append([]string{part}, pieces[i:]...)...)
		default:
			pieces[i] = part
		}
	}
	// Some letters are written in another way.
	text := strings.Join(pieces, "")
	if random.IntN(4) == 0 {
		i := random.IntN(len(text))
		if c := text[i]; 'a' <= c && c <= 'z' && !strings.Contains(text[max(0, i-2):i], "%") {
			const hex = "0123456789abcdef"
			text = text[:i] + "%" + string(hex[c>>4]) + string(hex[c&15]) + text[i+1:]
		}
	}
	if text[0] != '/' {
		text = "/" + text
	}
	return text
}

// GotAround returns the path for which a server that does what the forms say could take a
// target that was passed on to it, if that is protected by a rule under which the request
// was not counted; "" if there is none.
func GotAround(target string, forms spelling.Forms, counted ...string) string {
	for _, reading := range Readings(PathOf(target), forms) {
		if rule := Protected(reading); rule != "" && !slices.Contains(counted, rule) {
			return reading
		}
	}
	return ""
}
