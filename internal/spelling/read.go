package spelling

import (
	"net/url"
	"strings"
)

// Path is a path as all servers read it that do what the [Forms] say.
type Path struct {
	// Text is the path with everything decoded but slashes and backslashes, and with
	// one slash in place of several. Of paths that the servers take for one, it is the
	// one that [Forms.Same] returns.
	Text string
	// Kept is the reading with the parameters of the last segment, where Text is
	// without them and nothing is known about what the servers do; nil if there is
	// one reading only. The parameters begin at the byte At of the path that was
	// read, counted from 1.
	Kept *Path
	At   int
	// Cut says that Text is without parameters, as the servers cut them.
	Cut bool

	decoded, escaped string // for [Path.URL], if Text is not all
}

// URL returns the path for a router that works on URLs, such as http.ServeMux. It has
// nothing but the path.
func (p *Path) URL() *url.URL {
	if p.escaped == "" {
		return &url.URL{Path: p.Text}
	}
	return &url.URL{Path: p.decoded, RawPath: p.escaped}
}

// Is reports whether u has this path and needs no change.
func (p *Path) Is(u *url.URL) bool { return p.escaped == "" && u.Path == p.Text && u.RawPath == "" }

// Of returns what a path is of, such as a route, by a function that tells it of one
// reading, and whether that is anything that is known. With two readings it is what both
// are of, or the one that is of anything known; the error says that they are of different
// things.
func Of[T comparable](p *Path, of func(*Path) (what T, known bool)) (T, *Error) {
	what, known := of(p)
	if p.Kept == nil {
		return what, nil
	}
	switch other, knownToo := of(p.Kept); {
	case !knownToo || other == what:
		return what, nil
	case !known:
		return other, nil
	}
	return what, &Error{Parameters, p.At}
}

// Method reports whether all servers read the method alike. Some of them take small
// letters for capital ones.
func Method(method string) bool {
	for i := range len(method) {
		if 'a' <= method[i] && method[i] <= 'z' {
			return false
		}
	}
	return true
}

// Read reads a path as it stands in a request, with its escapes and without a query. No
// path at all is "/". The error says which part of it servers read in different ways, by
// what the forms leave open.
func Read(raw string, forms Forms) (Path, *Error) {
	switch {
	case raw == "":
		return Path{Text: "/"}, nil
	case raw[0] != '/':
		return Path{}, &Error{NoPath, 1}
	case plain(raw):
		return Path{Text: forms.Same(raw)}, nil
	case forms&LeadingSlashes == 0 && strings.HasPrefix(raw, "//"):
		return Path{}, &Error{Leading, 2}
	}
	r := reader{forms: forms}
	for start := 1; start <= len(raw); {
		end := strings.IndexByte(raw[start:], '/')
		last := end < 0
		if last {
			end = len(raw)
		} else {
			end += start
		}
		if err := r.segment(raw[start:end], start, last); err != nil {
			return Path{}, err
		}
		start = end + 1
	}
	return r.path()
}

// plain reports whether a path is made of nothing but what every server leaves as it is.
func plain(raw string) bool {
	for i := range len(raw) {
		switch c := raw[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '/':
			// No empty segment and no dot segment ends or begins here.
			if i+1 < len(raw) && (raw[i+1] == '/' || raw[i+1] == '.') {
				return false
			}
		case c == '.':
			if _, _, script := cutScript(raw[i:]); script {
				return false
			}
		case strings.IndexByte("-_.~!$&'()*+,=:@", c) < 0:
			return false
		}
	}
	return true
}

// reader collects the segments of a path.
type reader struct {
	forms Forms
	// names are the segments, without parameters unless those are kept; whole is
	// the last one with them, if it has any and it is not known what they are.
	names []string
	ats   []int // where in the path each begins, counted from 1
	whole string
	at    int  // where those begin, counted from 1
	slash bool // the last one is empty
	cut   bool // parameters were
}

// segment reads one segment, which begins at that byte of the path.
func (r *reader) segment(raw string, at int, last bool) *Error {
	if raw == "" {
		r.slash = last // one in the middle is as if it were not there
		return nil
	}
	name, err := decode(raw, at, r.forms)
	if err != nil {
		return err
	}
	if r.forms&EncodedSlashes == 0 {
		if i := strings.IndexAny(name.text, `/\`); i >= 0 {
			return &Error{Encoded, name.from(i)}
		}
	}
	if r.forms&DoubleEncoding == 0 {
		if i := escapeIn(name.text); i >= 0 {
			return &Error{Double, name.from(i)}
		}
	}
	text, whole := name.text, ""
	if r.forms&KeptParameters == 0 {
		if i := strings.IndexByte(raw, ';'); i >= 0 && r.forms&CutParameters != 0 {
			text, r.cut = text[:name.index(at+i)], true
		}
		if i := strings.IndexByte(text, ';'); i >= 0 {
			// Nobody is known to cut encoded ones off before anything is decoded.
			if !last || strings.ContainsAny(text[i:], `/\`) {
				return &Error{Parameters, name.from(i)}
			}
			r.at = name.from(i)
			text, whole = text[:i], text
		}
		if text == "" && !last {
			return &Error{Parameters, at + 1}
		}
	}
	for part := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == '/' || c == '\\' }) {
		if part == "." || part == ".." {
			return &Error{Dots, at + 1}
		}
	}
	r.whole = whole
	if text == "" {
		r.slash = true
		return nil
	}
	r.names, r.ats = append(r.names, text), append(r.ats, at+1)
	return nil
}

// path is what the segments are together.
func (r *reader) path() (Path, *Error) {
	read := len(r.names)
	if err := r.scripts(); err != nil {
		return Path{}, err
	}
	p := r.join(r.names, r.slash)
	p.Cut = r.cut
	if r.whole != "" {
		if _, rest, script := cutScript(r.whole); script && rest != "" && r.forms&KeptPathInfo == 0 || len(r.names) != read {
			return Path{}, &Error{Parameters, r.at}
		}
		names := r.names
		if !r.slash {
			names = names[:len(names)-1]
		}
		kept := r.join(append(names[:len(names):len(names)], r.whole), false)
		p.Kept, p.At = &kept, r.at
	}
	return p, nil
}

// scripts cuts off what the servers do where a segment is a script of PHP.
func (r *reader) scripts() *Error {
	if r.forms&KeptPathInfo != 0 {
		return nil
	}
	front := r.forms&FrontController != 0
	for i := 0; i < len(r.names); i++ {
		name, rest, script := cutScript(r.names[i])
		end := rest == "" && i == len(r.names)-1 && !r.slash
		switch {
		case !script:
		case front && i == 0 && name == frontController:
			front = false
			if r.names[0] = rest; rest == "" {
				r.names, r.ats = r.names[1:], r.ats[1:]
			}
			i--
		case end:
		case r.forms&FrontController != 0 && name == frontController:
			return &Error{PathInfo, r.ats[i]} // Another one than that at the start.
		case r.forms&CutPathInfo != 0 && rest == "" && strings.HasSuffix(name, ".php"):
			r.names, r.ats, r.slash = r.names[:i+1], r.ats[:i+1], false
		default:
			return &Error{PathInfo, r.ats[i]}
		}
	}
	return nil
}

// frontController is the script that all others are behind.
const frontController = "index.php"

// cutScript cuts a segment behind the name of a script of PHP, if it begins with one.
func cutScript(segment string) (name, rest string, script bool) {
	for i := 0; i+4 <= len(segment); i++ {
		if segment[i] != '.' {
			continue
		}
		for _, extension := range []string{".phtml", ".phar", ".php"} {
			if end := i + len(extension); end <= len(segment) && strings.EqualFold(segment[i:end], extension) {
				return segment[:end], segment[end:], true
			}
		}
	}
	return segment, "", false
}

// join makes a path of decoded segments.
func (r *reader) join(names []string, slash bool) Path {
	var text, decoded, escaped strings.Builder
	names, slash = r.forms.same(names, slash)
	for _, name := range names {
		for _, b := range []*strings.Builder{&text, &decoded, &escaped} {
			b.WriteByte('/')
		}
		decoded.WriteString(name)
		escaped.WriteString(url.PathEscape(name))
		writeText(&text, name)
	}
	if slash || len(names) == 0 {
		for _, b := range []*strings.Builder{&text, &decoded, &escaped} {
			b.WriteByte('/')
		}
	}
	return Path{Text: text.String(), decoded: decoded.String(), escaped: escaped.String()}
}

// writeText writes a segment for [Path.Text]: what would be a slash or an escape if it
// were decoded stays encoded, so that no two paths have one text.
func writeText(b *strings.Builder, name string) {
	for i := range len(name) {
		switch c := name[i]; {
		case c == '/':
			b.WriteString("%2F")
		case c == '\\':
			b.WriteString("%5C")
		case c == '%' && escapeIn(name[i:min(i+3, len(name))]) == 0:
			b.WriteString("%25")
		default:
			b.WriteByte(c)
		}
	}
}
