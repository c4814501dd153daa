package clients

import "strings"

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
