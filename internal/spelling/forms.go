package spelling

import (
	"fmt"
	"slices"
	"strings"
)

// Forms says what the servers behind do with forms of paths that servers read in
// different ways. The zero Forms says nothing: paths of all these forms are refused.
type Forms uint8

// What servers may do.
const (
	// EncodedSlashes says that %2F and %5C are part of the segment that they stand in.
	EncodedSlashes Forms = 1 << iota
	// DoubleEncoding says that servers decode once: %2541 is the text %41.
	DoubleEncoding
	// LeadingSlashes says that several slashes at the start are like one, or like
	// nothing that is served, and never the beginning of a host.
	LeadingSlashes
	// CutParameters says that what stands behind a ; in a segment is cut off before
	// anything is decoded.
	CutParameters
	// KeptParameters says that ; is a character like any other.
	KeptParameters
	// IgnoredOverrides says that servers take the method from the request line, whatever headers
	// such as X-HTTP-Method-Override and the parameter _method say.
	IgnoredOverrides
)

// words are the Forms in the words of configurations, in their order.
var words = []string{"encoded_slashes", "double_encoding", "leading_slashes", "cut_parameters", "kept_parameters", "ignored_overrides"}

// Words returns the words that [ParseForms] knows.
func Words() []string { return slices.Clone(words) }

// ParseForms returns the Forms that the words name. The problem is what is wrong with
// them, or "".
func ParseForms(list []string) (f Forms, problem string) {
	for _, word := range list {
		i := slices.Index(words, word)
		if i < 0 {
			return 0, fmt.Sprintf("%q is not a form of paths; the forms are %s", word, strings.Join(words, ", "))
		}
		f |= 1 << i
	}
	return f, f.Problem()
}

// Problem returns why the Forms cannot be true of one server, or "".
func (f Forms) Problem() string {
	switch {
	case f >= 1<<len(words):
		return fmt.Sprintf("the forms of paths are %#x, and not all of them are known", uint8(f))
	case f&CutParameters != 0 && f&KeptParameters != 0:
		return "parameters are either cut or kept; leave out cut_parameters or kept_parameters"
	}
	return ""
}
