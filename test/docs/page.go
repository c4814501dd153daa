package docs

import (
	"fmt"
	"strings"
)

// page is a page that is being written.
type page struct{ strings.Builder }

// newPage begins a page, whose first lines say where it comes from.
func newPage(title, source, about string) *page {
	p := &page{}
	p.say("# %s\n\n<!-- Written by `make reference` from %s. -->\n\n", title, source)
	p.prose(about)
	return p
}

func (p *page) say(format string, args ...any) { fmt.Fprintf(p, format, args...) }

// prose writes paragraphs in lines of at most 100 columns.
func (p *page) prose(text string) {
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		p.say("%s\n\n", Wrapped(paragraph, 100))
	}
}

// table writes a table. Cells may hold anything but line breaks.
func (p *page) table(head []string, rows [][]string) {
	p.say("| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = strings.ReplaceAll(strings.Join(strings.Fields(cell), " "), "|", `\|`)
		}
		p.say("| %s |\n", strings.Join(cells, " | "))
	}
	p.say("\n")
}

// item writes an item of a list.
func (p *page) item(text string) {
	p.say("- %s\n", strings.ReplaceAll(Wrapped(text, 98), "\n", "\n  "))
}

// bytes are the page, which ends with one line break.
func (p *page) bytes() []byte { return []byte(strings.TrimRight(p.String(), "\n") + "\n") }

// Wrapped breaks a text into lines at its spaces.
func Wrapped(text string, columns int) string {
	var b strings.Builder
	length := 0
	for word := range strings.FieldsSeq(text) {
		n := len([]rune(word))
		switch {
		case length == 0:
		case length+1+n > columns:
			b.WriteByte('\n')
			length = 0
		default:
			b.WriteByte(' ')
			length++
		}
		b.WriteString(word)
		length += n
	}
	return b.String()
}

// code is a text as code.
func code(text string) string { return "`" + text + "`" }

// codes are texts as code, in a row.
func codes(texts []string) string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = code(text)
	}
	return strings.Join(all, ", ")
}

// sentence begins with a capital letter and ends with a full stop.
func sentence(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	if first := text[0]; first >= 'a' && first <= 'z' {
		text = string(first-'a'+'A') + text[1:]
	}
	if last := text[len(text)-1]; last != '.' && last != '?' {
		text += "."
	}
	return text
}
