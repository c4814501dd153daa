package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"
)

// The sizes of what is read at once.
const (
	// blockBytes is the size of a block: large enough that handing it on costs nothing,
	// and small enough to stay in a core's cache.
	blockBytes = 256 << 10
	// MaxLine is the longest line that is read. Longer ones are unreadable.
	MaxLine = 64 << 10
	// zstdWindow bounds the memory that a zstd file may demand.
	zstdWindow = 128 << 20
)

// file is a log that is open.
type file struct {
	name   string
	in     io.Reader // decompressed
	close  []func() error
	packed bool   // in is compressed
	broken error  // why a compressed file could not be read to its end
	rest   []byte // the bytes after the last newline of the block before
	ended  bool
	skip   bool // the rest of a line that is too long must be skipped
	lines  int64
	format *Format
}

// counted counts the bytes that are read, for progress reports.
type counted struct {
	io.Reader
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// openFile opens a log and decompresses it. "-" means the standard input.
func (o *Options) openFile(name string, read *atomic.Int64) (f *file, err error) {
	f = &file{name: name}
	raw := o.Stdin
	if name != "-" {
		opened, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("headgate: %w", err)
		}
		f.close, raw = append(f.close, opened.Close), opened
	} else if raw == nil {
		return nil, errors.New("headgate: there is no standard input")
	}
	buffered := bufio.NewReaderSize(counted{raw, read}, 64<<10)
	var plain io.Reader = buffered
	switch magic, _ := buffered.Peek(4); {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("headgate: %s: %w", name, err), f.end())
		}
		plain = z // To close it frees nothing, and repeats the error of reading it.
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(zstdWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("headgate: %s: %w", name, err), f.end())
		}
		plain, f.close = z, append(f.close, func() error { z.Close(); return nil })
	}
	text := buffered
	if plain != buffered {
		f.packed, text = true, bufio.NewReader(plain)
	}
	f.in = text
	switch begin, _ := text.Peek(3); {
	case len(begin) < 2:
	case bytes.Equal(begin, []byte("\xef\xbb\xbf")): // the mark of UTF-8
		_, err = text.Discard(3)
	case begin[0] == 0xff && begin[1] == 0xfe, begin[0] == 0xfe && begin[1] == 0xff, (begin[0] == 0) != (begin[1] == 0):
		err = &FormatError{File: name, Text: "the file is in UTF-16; convert it first, as with iconv -f UTF-16 -t UTF-8"}
	}
	if err != nil {
		return nil, errors.Join(err, f.end())
	}
	return f, nil
}

// end closes what is open, the last first.
func (f *file) end() (err error) {
	for i := len(f.close) - 1; i >= 0; i-- {
		err = errors.Join(err, f.close[i]())
	}
	f.close = nil
	return err
}

// block reads as many whole lines as fit into buf. At the end it returns io.EOF without lines. long
// counts lines that were too long and are left out.
func (f *file) block(buf []byte) (_ []byte, long int, err error) {
	buf = append(buf[:0], f.rest...)
	f.rest = f.rest[:0]
	for !f.ended {
		if cap(buf) < blockBytes {
			buf = append(make([]byte, 0, blockBytes+MaxLine), buf...)
		}
		start := len(buf)
		n, err := f.in.Read(buf[start:blockBytes])
		buf = buf[:start+n]
		if f.skip && n > 0 {
			end := bytes.IndexByte(buf, '\n') + 1
			f.skip = end == 0
			if end == 0 {
				end = len(buf)
			}
			buf = buf[:copy(buf, buf[end:])]
		}
		switch {
		case errors.Is(err, io.EOF):
			f.ended = true
		case err != nil && f.packed:
			// What was read is whole, up to the last line.
			f.ended, f.broken = true, err
			buf = buf[:bytes.LastIndexByte(buf, '\n')+1]
		case err != nil:
			return buf[:0], long, fmt.Errorf("headgate: %s: %w", f.name, err)
		case len(buf) < blockBytes:
			continue
		}
		last := bytes.LastIndexByte(buf, '\n') + 1
		if len(buf)-last > MaxLine {
			long++
			f.skip, buf = true, buf[:last]
		}
		if f.ended || last > 0 {
			if !f.ended {
				f.rest = append(f.rest, buf[last:]...)
				buf = buf[:last]
			}
			break
		}
	}
	if len(buf) == 0 && long == 0 {
		return buf, 0, io.EOF
	}
	return buf, long, nil
}
