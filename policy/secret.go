package policy

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"sync"
)

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
