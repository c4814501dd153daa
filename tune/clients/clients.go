// Package clients keeps data about the clients in a log: a table with a bounded number of them, and
// whether a client says that it is a robot.
package clients

import (
	"hash/maphash"
	"iter"
	"strings"
	"unsafe"
)

// Table has a value for each client, found by the client's name. It is not safe for concurrent use.
// Make one with [New].
type Table[T any] struct {
	seed   maphash.Seed
	max    int
	slots  []uint32 // the number of a client plus one; zero is a free slot
	blocks [][]row[T]
	n      int
	names  [][]byte // memory of the names, in pieces that do not move
	beyond int64
}

// row is one client. Rows do not move, so that no memory is copied when the table grows.
type row[T any] struct {
	hash  uint64
	piece uint32
	off   uint32
	size  uint32
	value T
}

const (
	blockRows  = 1 << 12
	pieceBytes = 1 << 18
	minSlots   = 1 << 10
	// maxName is how many bytes of a name are kept. Names that differ only after that still belong
	// to different clients.
	maxName = 1 << 10
)

// New returns a table for at most the given number of clients.
func New[T any](most int) *Table[T] {
	return &Table[T]{seed: maphash.MakeSeed(), max: most, slots: make([]uint32, minSlots)}
}

// Find returns the value of the client, which is zero if the client is new. It returns nil if the
// client is new and the table is full. The pointer stays valid.
func (t *Table[T]) Find(name string) *T {
	hash := maphash.String(t.seed, name)
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		at := t.slots[i]
		if at == 0 {
			break
		}
		if r := t.row(int(at - 1)); r.hash == hash && t.name(r) == name[:min(len(name), maxName)] {
			return &r.value
		}
	}
	if t.n == t.max {
		t.beyond++
		return nil
	}
	if (t.n+1)*4 > len(t.slots)*3 {
		t.grow()
	}
	if t.n%blockRows == 0 {
		t.blocks = append(t.blocks, make([]row[T], blockRows))
	}
	r := t.row(t.n)
	r.hash = hash
	r.piece, r.off, r.size = t.keep(name[:min(len(name), maxName)])
	t.n++
	t.place(hash, uint32(t.n))
	return &r.value
}

func (t *Table[T]) row(i int) *row[T] { return &t.blocks[i/blockRows][i%blockRows] }

func (t *Table[T]) name(r *row[T]) string {
	if r.size == 0 {
		return ""
	}
	return unsafe.String(&t.names[r.piece][r.off], int(r.size))
}

// keep copies a name.
func (t *Table[T]) keep(name string) (piece, off, size uint32) {
	last := len(t.names) - 1
	if last < 0 || cap(t.names[last])-len(t.names[last]) < len(name) {
		t.names = append(t.names, make([]byte, 0, pieceBytes))
		last++
	}
	off = uint32(len(t.names[last]))
	t.names[last] = append(t.names[last], name...)
	return uint32(last), off, uint32(len(name))
}

func (t *Table[T]) place(hash uint64, n uint32) {
	mask := uint64(len(t.slots) - 1)
	i := hash & mask
	for t.slots[i] != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = n
}

func (t *Table[T]) grow() {
	t.slots = make([]uint32, 2*len(t.slots))
	for i := range t.n {
		t.place(t.row(i).hash, uint32(i+1))
	}
}

// Len is how many clients are in the table.
func (t *Table[T]) Len() int { return t.n }

// Beyond returns how often a client was not found because the table was full.
func (t *Table[T]) Beyond() int64 { return t.beyond }

// All returns the names and values of all clients, in the order in which they were added. The names
// share the table's memory.
func (t *Table[T]) All() iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		for i := range t.n {
			if r := t.row(i); !yield(t.name(r), &r.value) {
				return
			}
		}
	}
}

// robotWords are parts of the User-Agent headers of programs, in lower case.
var robotWords = []string{
	"bot", "crawl", "spider", "slurp", "scan", "curl/", "wget/", "python", "java/", "go-http-client", "libwww", "okhttp", "httpclient",
	"feed", "rss", "monitor", "archiver", "fetch", "facebookexternalhit", "headless", "phantomjs", "scrapy", "axios/", "node-fetch", "postmanruntime",
}

// Robots recognizes robots by their User-Agent headers, and remembers the results. The zero Robots
// is ready for use. It is not safe for concurrent use.
type Robots struct{ known map[string]bool }

// maxAgents bounds the remembered headers, so that clients with made-up headers cannot fill the
// memory.
const maxAgents = 1 << 14

// Is is like [Robot].
func (r *Robots) Is(agent string) bool {
	is, known := r.known[agent]
	if !known {
		if len(r.known) == maxAgents || r.known == nil {
			r.known = make(map[string]bool)
		}
		is = Robot(agent)
		r.known[strings.Clone(agent)] = is
	}
	return is
}

// Robot reports whether a User-Agent header is that of a program without a human reader: it says so
// itself, or names a library. It does not recognize robots that pretend to be browsers.
func Robot(agent string) bool {
	for i := range len(agent) {
		for _, word := range robotWords {
			if hasWord(agent[i:], word) {
				return true
			}
		}
	}
	return false
}

// hasWord reports whether the text begins with the word, ignoring case.
func hasWord(text, word string) bool {
	if len(text) < len(word) || text[0]|0x20 != word[0] {
		return false
	}
	return strings.EqualFold(text[:len(word)], word)
}
