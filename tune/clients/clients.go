// Package clients keeps data about the clients in a log: a table with a bounded number of them, and
// whether a client says that it is a robot.
package clients

import (
	"hash/maphash"
	"iter"
	"strings"
)

// Table has a value for each client, found by the client's name. It is not safe for concurrent use.
// Make one with [New].
type Table[T any] struct {
	most   int
	seed   maphash.Seed
	index  map[uint64]uint32 // the place of a client, by the hash of its name or, if another has it, the next free number
	blocks [][]row[T]        // rows are allocated many at a time
	n      int
	beyond int64
}

type row[T any] struct {
	name  string
	value T
}

const (
	blockRows = 1 << 10
	// maxName is how many bytes of a name are kept. Names that differ only after that are one client.
	maxName = 1 << 10
)

// New returns a table for at most the given number of clients, which must be below 2^32.
func New[T any](most int) *Table[T] {
	return &Table[T]{most: most, seed: maphash.MakeSeed(), index: make(map[uint64]uint32)}
}

// Find returns the value of the client, which is zero if the client is new. It returns nil if the
// client is new and the table is full. The pointer stays valid.
func (t *Table[T]) Find(name string) *T {
	name = name[:min(len(name), maxName)]
	hash := maphash.String(t.seed, name)
	for ; ; hash++ {
		i, known := t.index[hash]
		if !known {
			break
		}
		if r := &t.blocks[i/blockRows][i%blockRows]; r.name == name {
			return &r.value
		}
	}
	if t.n == t.most {
		t.beyond++
		return nil
	}
	if t.n/blockRows == len(t.blocks) {
		t.blocks = append(t.blocks, make([]row[T], blockRows))
	}
	r := &t.blocks[t.n/blockRows][t.n%blockRows]
	r.name = strings.Clone(name)
	t.index[hash] = uint32(t.n)
	t.n++
	return &r.value
}

// Len is how many clients are in the table.
func (t *Table[T]) Len() int { return t.n }

// Beyond returns how often a client was not found because the table was full.
func (t *Table[T]) Beyond() int64 { return t.beyond }

// All returns the names and values of all clients, in the order in which they came.
func (t *Table[T]) All() iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		for i := range t.n {
			if r := &t.blocks[i/blockRows][i%blockRows]; !yield(r.name, &r.value) {
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
