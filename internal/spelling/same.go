package spelling

import (
	"slices"
	"strings"
	"unicode"
)

// Of all paths that the servers take for the same one, a request is read as the one in small
// letters, without a slash and without an extension at its end.

// Same returns the path of plain characters that a path of these is read as.
func (f Forms) Same(path string) string {
	if f&folding == 0 {
		return path
	}
	if f&IgnoreCase != 0 {
		path = fold(path)
	}
	if f&IgnoreSlash != 0 && len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	if f&CutExtensions != 0 {
		path = withoutExtension(path)
	}
	return path
}

// same is Same for a path that has been decoded.
func (f Forms) same(names []string, slash bool) ([]string, bool) {
	if f&folding == 0 || len(names) == 0 {
		return names, slash
	}
	names = slices.Clone(names)
	for i := range names {
		if f&IgnoreCase != 0 {
			names[i] = fold(names[i])
		}
	}
	slash = slash && f&IgnoreSlash == 0
	if last := &names[len(names)-1]; f&CutExtensions != 0 && !slash {
		*last = withoutExtension(*last)
	}
	return names, slash
}

// Pattern returns the path of a pattern of http.ServeMux that finds requests as they are
// read, for one that finds them as they are sent.
func (f Forms) Pattern(path string) string {
	if f&(CutPathInfo|FrontController) != 0 && !strings.Contains(path, "{") {
		// No script of PHP is left in the middle, and no front controller.
		if p, err := Read(path, f&^folding); err == nil && p.Text != path && strings.Contains(path, ".php") {
			if path = p.Text; path == "/" {
				path = "/{$}"
			}
		}
	}
	if f&folding == 0 {
		return path
	}
	if f&IgnoreSlash != 0 && path != "/{$}" {
		path = strings.TrimSuffix(path, "/{$}")
	}
	if f&CutExtensions != 0 && !strings.HasSuffix(path, "}") {
		path = withoutExtension(path)
	}
	if f&IgnoreCase == 0 {
		return path
	}
	var b strings.Builder
	for path != "" {
		literal, rest, wildcard := strings.Cut(path, "{")
		b.WriteString(fold(literal))
		name, rest, closed := strings.Cut(rest, "}")
		if wildcard {
			b.WriteString("{" + name)
		}
		if closed {
			b.WriteString("}")
		}
		path = rest
	}
	return b.String()
}

// Prefix returns the beginning of paths as they are read, for one of paths as they are sent.
func (f Forms) Prefix(path string) string {
	if f&IgnoreCase != 0 {
		path = fold(path)
	}
	if f&CutExtensions != 0 {
		path = withoutExtension(path)
	}
	return path
}

// withoutExtension cuts off the first dot of the last segment that does not begin it, and what
// follows: a server that looks for the dot before it decodes takes .a%2eb for one extension.
func withoutExtension(path string) string {
	second := min(strings.LastIndexByte(path, '/')+2, len(path))
	if dot := strings.IndexByte(path[second:], '.'); dot >= 0 {
		return path[:second+dot]
	}
	return path
}

// fold returns a text in small letters. Those of ASCII stay apart from others, as servers
// have it: a Kelvin sign is no k.
func fold(text string) string {
	return strings.Map(func(r rune) rune {
		if small := unicode.ToLower(unicode.ToUpper(r)); r < 0x80 == (small < 0x80) {
			return small
		}
		return r
	}, text)
}
