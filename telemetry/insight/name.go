package insight

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Name is a key: any bytes, possibly chosen by a client. In JSON it is an object with an "id",
// which encodes the bytes, and a "text" for people, in which unprintable characters are escaped.
type Name struct {
	Raw string
	// Cut says that Raw is only the beginning of the key, because there was no memory for more.
	Cut bool
}

type nameJSON struct {
	ID   string `json:"id"`
	Text string `json:"text"`
	Cut  bool   `json:"cut,omitempty"`
}

// MarshalJSON implements [json.Marshaler].
func (n Name) MarshalJSON() ([]byte, error) {
	return json.Marshal(nameJSON{n.ID(), n.Text(), n.Cut})
}

// UnmarshalJSON implements [json.Unmarshaler]. It ignores the text, and reads the id and whether
// the key is cut.
func (n *Name) UnmarshalJSON(b []byte) error {
	var from nameJSON
	if err := json.Unmarshal(b, &from); err != nil {
		return err
	}
	parsed, err := ParseID(from.ID)
	*n = Name{parsed.Raw, from.Cut}
	return err
}

// ID returns the key encoded in letters, digits, "-" and "_" (base64url).
func (n Name) ID() string { return base64.RawURLEncoding.EncodeToString([]byte(n.Raw)) }

// errID is the error for a text that is not the ID of a name.
var errID = errors.New("headgate: not the id of a key")

// ParseID is the inverse of [Name.ID].
func ParseID(id string) (Name, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(id)
	if err != nil {
		return Name{}, errID
	}
	return Name{Raw: string(raw)}, nil
}

// maxText is about how much of a key is shown, in bytes.
const maxText = 160

// Text returns the key for people to read. Bytes that are not UTF-8, control characters, and marks
// that change the display of the text around them are escaped as in Go source code. A long key is
// shortened.
func (n Name) Text() string {
	var b strings.Builder
	raw := n.Raw
	for len(raw) > 0 {
		c, size := utf8.DecodeRuneInString(raw)
		switch {
		case b.Len() > maxText:
			b.WriteString("…")
			return b.String()
		case c == utf8.RuneError && size == 1:
			writeEscape(&b, 'x', uint32(raw[0]), 2)
		case c == '\\':
			b.WriteString(`\\`)
		case unicode.IsPrint(c):
			b.WriteRune(c)
		case c < 0x80:
			writeEscape(&b, 'x', uint32(c), 2)
		case c > 0xffff:
			writeEscape(&b, 'U', uint32(c), 8)
		default:
			writeEscape(&b, 'u', uint32(c), 4)
		}
		raw = raw[size:]
	}
	if n.Cut {
		b.WriteString("…")
	}
	return b.String()
}

func writeEscape(b *strings.Builder, kind byte, c uint32, digits int) {
	b.WriteByte('\\')
	b.WriteByte(kind)
	for i := digits - 1; i >= 0; i-- {
		b.WriteByte("0123456789abcdef"[c>>(4*i)&15])
	}
}
