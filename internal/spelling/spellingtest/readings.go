package spellingtest

import (
	"path"
	"regexp"
	"strings"

	"github.com/headgate/headgate/internal/spelling"
)

// Protected returns the name of the rule for a path that a server has read, and ""
// if there is none: "token" for /v1/token, "script" for /script.php, "admin" for /admin and
// what is below.
func Protected(read string) string {
	switch {
	case read == "/v1/token":
		return "token"
	case read == "/script.php":
		return "script"
	case read == "/admin", strings.HasPrefix(read, "/admin/"):
		return "admin"
	}
	return ""
}

// step is something that a server may do to a path, with what it may make of it.
type step func(text string) []string

// maxReadings bounds the readings of one path. More are a defect of a test: the paths of
// [Spellings] have a few hundred.
const maxReadings = 20_000

// Readings returns what servers may take a path for that do what the forms say: the path
// itself, and all that any sequence of their steps makes of it.
func Readings(raw string, forms spelling.Forms) []string {
	all := steps(forms)
	first := []string{raw}
	if forms&spelling.CutParameters != 0 {
		first = cutEach(raw)
	}
	type state struct {
		text    string
		decoded int // how often
	}
	most := 2
	if forms&spelling.DoubleEncoding != 0 {
		most = 1
	}
	seen := make(map[state]bool)
	var todo []state
	add := func(s state) {
		if !seen[s] && len(seen) < maxReadings {
			seen[s] = true
			todo = append(todo, s)
		}
	}
	for _, text := range first {
		add(state{text, 0})
	}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, do := range all {
			for _, text := range do(s.text) {
				add(state{text, s.decoded})
			}
		}
		if s.decoded == 0 {
			// What is encoded ends nothing: "C%23" and "what%3F" are names.
			for _, end := range []string{"#", "?"} {
				before, _, _ := strings.Cut(s.text, end)
				add(state{before, 0})
			}
		}
		if s.decoded < most {
			// Some decode dots alone, as the URLs of browsers do, and the rest later.
			add(state{dots.ReplaceAllString(s.text, "."), s.decoded})
			for _, text := range decodings(s.text, forms) {
				add(state{text, s.decoded + 1})
			}
		}
	}
	read := make(map[string]bool)
	var list []string
	for s := range seen {
		if !read[s.text] {
			read[s.text] = true
			list = append(list, s.text)
		}
	}
	return list
}

// steps are those of servers that do what the forms say, but for decoding.
func steps(forms spelling.Forms) []step {
	all := []step{mergeSlashes, resolveDots, cleaned, endAtZero, withoutControls, turnBackslashes, shortest}
	if forms&spelling.LeadingSlashes == 0 {
		all = append(all, withoutHost)
	}
	if forms&(spelling.KeptParameters|spelling.CutParameters) == 0 {
		all = append(all, cutEach, cutLast)
	}
	for form, do := range map[spelling.Forms]step{spelling.KeptPathInfo: cutScript, spelling.OtherBytes: withoutInvalid} {
		if forms&form == 0 {
			all = append(all, do)
		}
	}
	for form, do := range map[spelling.Forms]step{spelling.IgnoreCase: small, spelling.IgnoreSlash: withoutSlash, spelling.CutExtensions: withoutExtension} {
		if forms&form != 0 {
			all = append(all, do)
		}
	}
	return all
}

var (
	escapes  = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
	dots     = regexp.MustCompile(`(?i)%2e`)
	slashes  = regexp.MustCompile(`/{2,}`)
	controls = regexp.MustCompile("[\t\r\n]")
	host     = regexp.MustCompile(`^[/\\]{2}[^/\\?#]*`)
	hosts    = regexp.MustCompile(`^[/\\]{2,}[^/\\?#]*`)
	segment  = regexp.MustCompile(`;[^/]*`)
	script   = regexp.MustCompile(`^(.*?\.php)/.*$`)
	dotted   = regexp.MustCompile(`\.[^./]+$`)
)

// decodings are the ways to decode a path once.
func decodings(text string, forms spelling.Forms) []string {
	always := ""
	if forms&spelling.EncodedSlashes != 0 {
		always = `/\`
	}
	decode := func(leave string) string {
		return escapes.ReplaceAllStringFunc(text, func(e string) string {
			b := string([]byte{unhex(e[1])<<4 | unhex(e[2])})
			if strings.Contains(leave+always, b) {
				return e
			}
			return b
		})
	}
	// Some leave what would change the path's structure.
	return []string{decode(""), decode("/"), decode(`/\%`), decode(`/\%;?#`)}
}

func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	}
	return c - 'a' + 10
}

func mergeSlashes(text string) []string { return []string{slashes.ReplaceAllString(text, "/")} }

// resolveDots is RFC 3986 section 5.2.4, to which an empty segment is one, too.
func resolveDots(text string) []string {
	in := strings.Split(text, "/")
	var out []string
	for i, s := range in {
		switch s {
		case ".", "..":
			if s == ".." && len(out) > 1 {
				out = out[:len(out)-1]
			}
			if i == len(in)-1 {
				out = append(out, "")
			}
		default:
			out = append(out, s)
		}
	}
	return []string{strings.Join(out, "/")}
}

// cleaned is what path.Clean makes of it, but for the slash at the end: servers that do
// without are not to be told from others by any path.
func cleaned(text string) []string {
	clean := path.Clean("/" + text)
	if strings.HasSuffix(text, "/") && clean != "/" {
		clean += "/"
	}
	return []string{clean}
}

// endAtZero is what is left to programs to which a zero byte ends a text.
func endAtZero(text string) []string {
	before, _, _ := strings.Cut(text, "\x00")
	return []string{before}
}

func withoutControls(text string) []string { return []string{controls.ReplaceAllString(text, "")} }

func turnBackslashes(text string) []string { return []string{strings.ReplaceAll(text, `\`, "/")} }

// shortest takes overlong forms of ASCII characters for these.
func shortest(text string) []string {
	for _, r := range []struct{ long, short string }{
		{"\xc0\xaf", "/"}, {"\xc0\xae", "."}, {"\xc1\x9c", `\`}, {"\xe0\x80\xaf", "/"}, {"\xe0\x80\xae", "."}, {"\xf0\x80\x80\xaf", "/"},
	} {
		text = strings.ReplaceAll(text, r.long, r.short)
	}
	return []string{text}
}

// withoutHost takes what follows two slashes for a host, as relative URLs have it, or what
// follows all of them, as those of browsers do.
func withoutHost(text string) []string {
	return []string{host.ReplaceAllString(text, ""), hosts.ReplaceAllString(text, "")}
}

// cutEach cuts parameters off every segment.
func cutEach(text string) []string { return []string{segment.ReplaceAllString(text, "")} }

// cutLast cuts those of the last segment off, from the first ; or from the last one, or
// everything from a ; on.
func cutLast(text string) []string {
	before, _, _ := strings.Cut(text, ";")
	slash := strings.LastIndexByte(text, '/') + 1
	last := text[slash:]
	name, _, _ := strings.Cut(last, ";")
	if i := strings.LastIndexByte(last, ';'); i >= 0 {
		last = last[:i]
	}
	return []string{before, text[:slash] + name, text[:slash] + last}
}

// cutScript cuts off what follows a script of PHP, and the front controller at the start.
func cutScript(text string) []string {
	all := []string{script.ReplaceAllString(text, "$1")}
	if rest, ok := strings.CutPrefix(text, "/index.php"); ok {
		all = append(all, "/"+strings.TrimPrefix(rest, "/"))
	}
	return all
}

func withoutInvalid(text string) []string { return []string{strings.ToValidUTF8(text, "")} }

func small(text string) []string {
	return []string{strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, text)}
}

func withoutSlash(text string) []string { return []string{strings.TrimSuffix(text, "/")} }

func withoutExtension(text string) []string { return []string{dotted.ReplaceAllString(text, "")} }
