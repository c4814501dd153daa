// Package traffic makes large access logs out of a small real one, for tests and benchmarks
// that need many lines and many clients.
//
// # Basics
//
//	err := traffic.Write(w, log, 10_000_000, 1_000_000)
//
// # How it works
//
// The real log is sorted by time and written again and again, each time behind the last,
// until there are enough lines. Ten copies of it run side by side, as on a site with ten
// times the visitors. A copy has clients of its own: the requests of an address are those
// of another address, which a hash of the address and the number of the copy names. So
// each client does what some real client did, at the pace at which it did so. When there
// are enough clients, the first ones come again.
//
// # Caveats
//
// A copy is no more than a copy: there are no days with more visitors than others, and the
// pages that are asked for stay those of the real log.
package traffic

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"time"
)

// beside is how many copies run side by side.
const beside = 10

const layout = "02/Jan/2006:15:04:05 -0700"

// line is a line of the real log, in the combined format.
type line struct {
	client, between, rest []byte
	at                    time.Time
}

// Write writes a log of so many lines, of about so many clients, to w.
func Write(w io.Writer, log []byte, lines, clients int) error {
	visits, addresses, err := read(log)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 1<<20)
	variants := max(1, (clients+addresses/2)/addresses)
	length := visits[len(visits)-1].at.Sub(visits[0].at).Truncate(24*time.Hour) + 24*time.Hour
	written := 0
	var stamp []byte
	for round := 0; ; round++ {
		var last time.Time
		for i := range visits {
			l := &visits[i]
			if !l.at.Equal(last) {
				last = l.at
				stamp = l.at.Add(time.Duration(round)*length).AppendFormat(stamp[:0], layout)
			}
			for c := range beside {
				if written == lines {
					return out.Flush()
				}
				written++
				var space [16]byte
				for _, part := range [][]byte{address(space[:0], l.client, (round*beside+c)%variants), l.between, stamp, l.rest} {
					// The writer keeps its error for Flush.
					_, _ = out.Write(part)
				}
			}
		}
		if out.Buffered() > 0 && round%16 == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

// read sorts the lines of the real log by time.
func read(log []byte) (all []line, addresses int, err error) {
	seen := make(map[string]bool)
	for text := range bytes.Lines(log) {
		client, rest, ok := bytes.Cut(text, []byte(" "))
		open, end := bytes.IndexByte(rest, '['), bytes.IndexByte(rest, ']')
		if !ok || open < 0 || end < open {
			return nil, 0, fmt.Errorf("traffic: the line %q is not in the combined format", text)
		}
		at, err := time.Parse(layout, string(rest[open+1:end]))
		if err != nil {
			return nil, 0, fmt.Errorf("traffic: the line %q: %w", text, err)
		}
		seen[string(client)] = true
		all = append(all, line{client, text[len(client) : len(client)+1+open+1], rest[end:], at})
	}
	if all == nil {
		return nil, 0, errors.New("traffic: the log is empty")
	}
	slices.SortStableFunc(all, func(a, b line) int { return a.at.Compare(b.at) })
	return all, len(seen), nil
}

// address is the address of a client in a copy; in the first copy it is its own.
func address(dst, client []byte, variant int) []byte {
	if variant == 0 {
		return append(dst, client...)
	}
	h := fnv.New64a()
	_, _ = h.Write(client)
	_, _ = h.Write([]byte{byte(variant), byte(variant >> 8), byte(variant >> 16)})
	sum := h.Sum64()
	sum ^= sum >> 29
	return fmt.Appendf(dst, "%d.%d.%d.%d", 1+sum%222, byte(sum>>16), byte(sum>>24), byte(sum>>32))
}
