package spelling

import "fmt"

// Reason is what servers disagree about in a path.
type Reason uint8

// The reasons.
const (
	// NoPath is what does not begin with a slash.
	NoPath Reason = iota + 1
	// Control is a control character, plain or encoded, or a space.
	Control
	// Escape is a % that two hexadecimal digits do not follow.
	Escape
	// Overlong is a character that is encoded with more bytes than it needs.
	Overlong
	// Fragment is a #.
	Fragment
	// Backslash is a \ that is not encoded.
	Backslash
	// Dots is a segment that is . or .., however it is written.
	Dots
	// Encoded is an encoded slash or backslash; see [EncodedSlashes].
	Encoded
	// Double is what is an escape when it has been decoded; see [DoubleEncoding].
	Double
	// Leading is more than one slash at the start; see [LeadingSlashes].
	Leading
	// Parameters is a ; by which a path is of one route with what follows it and of
	// another without; see [CutParameters] and [KeptParameters].
	Parameters
	// Bytes are bytes that are not UTF-8; see [OtherBytes].
	Bytes
	// PathInfo is what follows .php, or another extension of PHP; see [CutPathInfo],
	// [FrontController] and [KeptPathInfo].
	PathInfo
)

var reasons = [...]string{
	NoPath:     "no slash at the start",
	Control:    "a control character or a space",
	Escape:     "an escape without two hexadecimal digits",
	Overlong:   "a character that is encoded with too many bytes",
	Fragment:   `a "#"`,
	Backslash:  "a backslash",
	Dots:       `a segment "." or ".."`,
	Encoded:    "an encoded slash or backslash",
	Double:     "a character that is encoded twice",
	Leading:    "a second slash",
	Parameters: `parameters, behind ";"`,
	Bytes:      "a byte that is not UTF-8",
	PathInfo:   `the name of a PHP script, with more behind it`,
}

// String says it in a few words.
func (r Reason) String() string {
	if int(r) < len(reasons) && r != 0 {
		return reasons[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// Error is why a path is not read.
type Error struct {
	Reason Reason
	At     int // the byte of the path where it stands, counted from 1
}

// Error says what stands where, and what to do. It repeats nothing of the path.
func (e *Error) Error() string {
	if e.Reason == NoPath {
		return fmt.Sprintf("The path has %s.", e.Reason)
	}
	return fmt.Sprintf("Byte %d of the path begins %s, which servers read in different ways. Send a path without it.", e.At, e.Reason)
}
