// Package outagebench measures what a store that hangs costs the requests, and
// what being prepared for it costs while the store is well.
//
// # Basics
//
// [Run] asks a real Redis at a steady rate, through the store alone and through the
// fallback around it, stops the server's process (SIGSTOP) for a while, and lets it
// go on. Latencies count from when a request was to begin, so that one which had to
// wait for another is not left out.
//
// # Caveats
//
// A server that is stopped is the worst that can happen: it takes connections and
// answers nothing. One that refuses connections costs less.
package outagebench
