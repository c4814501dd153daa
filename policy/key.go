package policy

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"github.com/headgate/headgate"
)

// MaxParts is how many parts the key of one rule may have.
const MaxParts = 8

// Part is one entry by which a rule's counters are kept. The entry "ip", and any entry with prefix
// lengths, is an IP address. It is brought to one spelling (an IPv4 address inside IPv6 becomes
// IPv4, a zone is dropped) and cut to its network; then it is hashed, if the entry is secret. A
// value that is not an address stays as it is.
type Part struct {
	// Entry is the entry's name. Required.
	Entry string
	// Bits4 is the prefix length for IPv4 addresses, 1 to 32. Zero keeps them
	// whole.
	Bits4 int
	// Bits6 is the prefix length for IPv6 addresses, 1 to 128. Zero keeps them whole. One customer
	// usually has a /64, and can use any address in it.
	Bits6 int
}

// ParsePart reads the text form of a part: ENTRY, ENTRY/BITS6 or
// ENTRY/BITS4/BITS6, such as "user", "ip/64" and "ip/24/64".
func ParsePart(s string) (Part, error) {
	words := strings.Split(s, "/")
	p := Part{Entry: words[0]}
	var err4, err6 error
	switch len(words) {
	case 1:
	case 2:
		p.Bits6, err6 = prefixLength(words[1], 128)
	case 3:
		p.Bits4, err4 = prefixLength(words[1], 32)
		p.Bits6, err6 = prefixLength(words[2], 128)
	default:
		return Part{}, headgate.Invalid("", "per", "key part %s: write it as user, ip/64 or ip/24/64", Quote(s))
	}
	for _, err := range []error{err4, err6} {
		if err != nil {
			return Part{}, headgate.Invalid("", "per", "key part %s: %v", Quote(s), err)
		}
	}
	if problem := p.check(); problem != "" {
		return Part{}, headgate.Invalid("", "per", "key part %s: %s", Quote(s), problem)
	}
	return p, nil
}

func prefixLength(s string, most int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("prefix length %q is not a whole number from 1 to %d", s, most)
	}
	return n, nil
}

// String writes the part as [ParsePart] reads it.
func (p Part) String() string {
	switch {
	case p.Bits4 != 0:
		return fmt.Sprintf("%s/%d/%d", p.Entry, p.Bits4, cmp.Or(p.Bits6, 128))
	case p.Bits6 != 0:
		return fmt.Sprintf("%s/%d", p.Entry, p.Bits6)
	}
	return p.Entry
}

// check returns what is wrong with the part, or "".
func (p Part) check() string {
	switch {
	case p.Bits4 < 0 || p.Bits4 > 32:
		return fmt.Sprintf("entry %q: the IPv4 prefix length is %d, must be 1 to 32", p.Entry, p.Bits4)
	case p.Bits6 < 0 || p.Bits6 > 128:
		return fmt.Sprintf("entry %q: the IPv6 prefix length is %d, must be 1 to 128", p.Entry, p.Bits6)
	}
	return checkEntryName(p.Entry)
}

// Address reports whether the part's values are IP addresses.
func (p Part) Address() bool { return p.Entry == "ip" || p.Bits4 != 0 || p.Bits6 != 0 }

// appendAddress appends the one spelling of the address, or of the network that
// it is counted under. It reports false if the value is no address.
func (p Part) appendAddress(dst []byte, value string) ([]byte, bool) {
	a, err := netip.ParseAddr(value)
	if err != nil {
		return dst, false
	}
	a = a.Unmap().WithZone("")
	bits := p.Bits6
	if a.Is4() {
		bits = p.Bits4
	}
	if bits == 0 || bits == a.BitLen() {
		return a.AppendTo(dst), true
	}
	network, err := a.Prefix(bits)
	if err != nil {
		return dst, false
	}
	return network.AppendTo(dst), true
}

// separator stands between the parts of a key. Within a part, the separator and the escape
// character are escaped, so that two different lists of values never make the same key.
const (
	separator = '|'
	escape    = '\\'
)

// appendEscaped appends one part of a joined key.
func appendEscaped(dst []byte, value string) []byte {
	for i := range len(value) {
		if value[i] == separator || value[i] == escape {
			dst = append(dst, escape)
		}
		dst = append(dst, value[i])
	}
	return dst
}

// split undoes the joining of n parts, or reports false if there are not n.
func split(key string, n int) ([]string, bool) {
	parts := make([]string, 0, n)
	var part []byte
	for i := 0; i < len(key); i++ {
		switch {
		case key[i] == separator:
			parts, part = append(parts, string(part)), nil
			continue
		case key[i] == escape && i+1 < len(key):
			i++
		}
		part = append(part, key[i])
	}
	parts = append(parts, string(part))
	return parts, len(parts) == n
}

func (r *compiled) partNames() string {
	names := make([]string, len(r.parts))
	for i := range r.parts {
		names[i] = r.parts[i].Entry
	}
	return strings.Join(names, ", ")
}

// key makes the key that the rule counts the request under, secrets hashed by h, or reports false if
// the descriptor lacks one of its entries.
func (r *compiled) key(d Descriptor, h *hasher) (string, bool) {
	var space [192]byte
	key := space[:0]
	var value string
	for i := range r.parts {
		var ok bool
		if value, ok = d.Get(r.parts[i].Entry); !ok {
			return "", false
		}
		if len(r.parts) == 1 && r.parts[i].plain && len(value) <= headgate.MaxKey && value[0] != shortened {
			return value, true
		}
		if i > 0 {
			key = append(key, separator)
		}
		key = r.appendValue(key, &r.parts[i], value, h)
	}
	switch {
	case len(key) > headgate.MaxKey, len(key) > 0 && key[0] == shortened:
		return shorten(key), true
	case len(r.parts) == 1 && string(key) == value:
		// An address in its one spelling already: no copy is needed.
		return value, true
	}
	return string(key), true
}

func (r *compiled) appendValue(key []byte, p *compiledPart, value string, h *hasher) []byte {
	if p.secret {
		if p.address {
			var space [64]byte
			if network, ok := p.appendAddress(space[:0], value); ok {
				value = string(network)
			}
		}
		return h.append(key, p.Entry, value)
	}
	if p.address {
		var ok bool
		if key, ok = p.appendAddress(key, value); ok {
			return key
		}
	}
	if len(r.parts) == 1 {
		return append(key, value...)
	}
	return appendEscaped(key, value)
}

// The bounds of the key given to [HashKey], in bytes.
const (
	MinHashKey = 16
	MaxHashKey = 1024
)

// secrets are the entries that are secret even if no option names them.
var secrets = []string{"api_key", "token", "authorization"}

// domain separates hashes without a key from all other uses of SHA-256.
const domain = "headgate secret v1\x00"

// hashed is how many bytes of a hash are kept. It is enough that two different values practically
// never have the same hash.
const hashed = 16

// hashLength is the length of a hash as a text.
var hashLength = base64.RawURLEncoding.EncodedLen(hashed)

// checkHash returns what is wrong with the text of a hash, or "".
func checkHash(text string) string {
	if len(text) == hashLength {
		if _, err := base64.RawURLEncoding.Strict().DecodeString(text); err == nil {
			return ""
		}
	}
	return fmt.Sprintf("%s is no hash of a secret; it has %d letters, digits, - and _", Quote(text), hashLength)
}

// hasher makes hashes of secret values for keys. Its hash states are pooled, because making one for
// each request would allocate more than everything else together.
type hasher struct {
	keyed bool
	pool  sync.Pool
	// next is another hasher whose hashes the policy may contain, or nil.
	next *hasher
}

type hashState struct {
	hash hash.Hash
	text []byte
	sum  []byte
}

func newHasher(key []byte) *hasher {
	h := &hasher{keyed: len(key) != 0}
	h.pool.New = func() any {
		if len(key) == 0 {
			return &hashState{hash: sha256.New()}
		}
		return &hashState{hash: hmac.New(sha256.New, key)}
	}
	return h
}

// append appends the hash of the entry's value. The entry's name is hashed too, so the same text
// has different hashes as a token and as an API key.
func (h *hasher) append(dst []byte, entry, value string) []byte {
	s, _ := h.pool.Get().(*hashState)
	s.text = s.text[:0]
	if !h.keyed {
		s.text = append(s.text, domain...)
	}
	s.text = append(append(append(s.text, entry...), 0), value...)
	s.hash.Reset()
	s.hash.Write(s.text)
	s.sum = s.hash.Sum(s.sum[:0])
	dst = base64.RawURLEncoding.AppendEncode(dst, s.sum[:hashed])
	// The secret must not stay in memory after the call.
	clear(s.text)
	h.pool.Put(s)
	return dst
}

// shortened is the first byte of what replaces a key that is too long for a store. No text begins
// with it. A key that does is replaced as if it were too long, so that nobody can write the
// replacement of another key.
const shortened = '\x00'

// shorten returns the replacement of the key.
func shorten(key []byte) string {
	sum := sha256.Sum256(key)
	return string(shortened) + base64.RawURLEncoding.EncodeToString(sum[:])
}
