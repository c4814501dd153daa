package clients

import "strings"

// robotWords are parts of the User-Agent of programs, in small letters.
var robotWords = []string{
	"bot", "crawl", "spider", "slurp", "scan", "curl/", "wget/", "python", "java/", "go-http-client", "libwww", "okhttp", "httpclient",
	"feed", "rss", "monitor", "archiver", "fetch", "facebookexternalhit", "headless", "phantomjs", "scrapy", "axios/", "node-fetch", "postmanruntime",
}

// Robots tells robots by their User-Agent header, and remembers what it was asked. The zero
// Robots is ready. It is not for concurrent use.
type Robots struct{ known map[string]bool }

// maxAgents bounds what is remembered. Whoever makes up headers cannot fill the memory.
const maxAgents = 1 << 14

// Is is [Robot].
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

// Robot reports whether a User-Agent header is one of a program that no person looks
// through: it says so itself, or is that of a library. Robots that pass for browsers are
// not found by it.
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

// hasWord reports whether the text begins with the word, in letters of any size.
func hasWord(text, word string) bool {
	if len(text) < len(word) || text[0]|0x20 != word[0] {
		return false
	}
	return strings.EqualFold(text[:len(word)], word)
}
