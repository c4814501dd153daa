package spelling

import (
	"fmt"
	"slices"
	"strings"
)

// Forms says what the servers behind do with forms of paths that servers read in
// different ways. The zero Forms says nothing: paths of all these forms are refused, and
// paths that differ in case or in a slash at the end are different paths.
type Forms uint16

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
	// OtherBytes says that bytes that are not UTF-8 are kept as they are, or refused.
	OtherBytes
	// CutPathInfo says that a path ends with the first segment that ends in .php: the
	// rest is what PHP calls PATH_INFO.
	CutPathInfo
	// FrontController says that /index.php at the start is as if it were not there.
	FrontController
	// KeptPathInfo says that .php is text like any other.
	KeptPathInfo
	// IgnoreCase says that paths are the same in small and in capital letters.
	IgnoreCase
	// ExactCase says that they are not.
	ExactCase
	// IgnoreSlash says that paths are the same with and without a slash at the end.
	IgnoreSlash
	// ExactSlash says that they are not.
	ExactSlash
	// CutExtensions says that paths are the same with and without an extension, such
	// as .json.
	CutExtensions
	// IgnoredOverrides says that servers take the method from the request line, whatever headers
	// such as X-HTTP-Method-Override and the parameter _method say.
	IgnoredOverrides

	defined = IgnoredOverrides<<1 - 1
)

// words are the Forms in the words of configurations, in their order.
var words = []string{
	"encoded_slashes", "double_encoding", "leading_slashes", "cut_parameters", "kept_parameters", "other_bytes",
	"cut_path_info", "front_controller", "kept_path_info", "ignore_case", "exact_case", "ignore_slash", "exact_slash", "cut_extensions", "ignored_overrides",
}

// either are Forms that exclude each other: the one or the other.
var either = [][2]Forms{
	{CutParameters, KeptParameters}, {CutPathInfo | FrontController, KeptPathInfo}, {IgnoreCase, ExactCase}, {IgnoreSlash, ExactSlash},
}

// folding are Forms by which several paths are one. Without them paths are told apart.
const folding = IgnoreCase | IgnoreSlash | CutExtensions

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

// Words returns the words for the Forms.
func (f Forms) Words() (list []string) {
	for i, word := range words {
		if f&(1<<i) != 0 {
			list = append(list, word)
		}
	}
	return list
}

// Problem returns why the Forms cannot be true of one server, or "".
func (f Forms) Problem() string {
	if f&^defined != 0 {
		return fmt.Sprintf("the forms of paths are %#x, and not all of them are known", uint16(f))
	}
	for _, pair := range either {
		if a, b := f&pair[0], f&pair[1]; a != 0 && b != 0 {
			return fmt.Sprintf("%s and %s exclude each other; leave one out", strings.Join(a.Words(), ", "), b.Words()[0])
		}
	}
	return ""
}

// Or returns f, and what is known besides, as far as that does not contradict it.
func (f Forms) Or(known Forms) Forms {
	for _, pair := range either {
		if f&(pair[0]|pair[1]) != 0 {
			known &^= pair[0] | pair[1]
		}
	}
	return f | known
}
