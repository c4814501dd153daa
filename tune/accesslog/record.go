package accesslog

import (
	"cmp"
	"slices"
	"unsafe"

	"github.com/headgate/headgate/internal/prefetch"
)

// Field says where in the bytes of its [Batch] a text is. The zero Field is an absent text.
type Field struct{ off, size uint32 }

// Record is one line of a log. Which fields there are depends on the format.
type Record struct {
	// Time is when the request began, in microseconds since the Unix epoch. If the log has the time
	// of the end and the duration, it is their difference.
	Time int64
	// Duration is how long the request took, in microseconds; -1 if the log does not say.
	Duration int64
	// IP is the client's address, without a port.
	IP Field
	// User is the authenticated user.
	User Field
	// Method is such as GET.
	Method Field
	// Target is the path with its query, as the client sent it.
	Target Field
	// Host is the host that was asked, with or without a port.
	Host Field
	// Agent is the client's User-Agent header.
	Agent Field
	// Status is the status of the response; zero if the log does not say.
	Status int32
	// Fine says that the time is more precise than whole seconds.
	Fine bool
}

// Batch is a block of lines and what was found in them.
type Batch struct {
	buf     []byte
	records []Record
	extra   []Field // extras for each record
	extras  int

	lines   int // lines of the block, without empty ones
	bad     []Unreadable
	badAll  int
	tooLong int     // lines that were too long and left out
	found   uint64  // a bit for each part and each extra of which a line had a value
	newest  int64   // the latest time of a record
	ordered bool    // the records are in the order of time
	order   []int64 // the order of the records by time, unless they are ordered; see sort

	format *Format
	ready  chan struct{}
	left   int // records that were not released yet
}

// placeBits is how many of the low bits of an element of Batch.order are the place of a record.
const placeBits = 20

// A place fits into these bits, because a block has fewer lines than bytes. If it may have more
// bytes than that, this does not compile.
const _ = uint(1<<placeBits - (blockBytes + MaxLine))

// sort finds the order of the records by time. Records of one time stay in the order of their lines.
func (b *Batch) sort() {
	oldest := b.newest
	for i := range b.records {
		oldest = min(oldest, b.records[i].Time)
		b.order = append(b.order, int64(i))
	}
	if b.newest-oldest >= 1<<(63-placeBits) { // more than three months in one block
		slices.SortStableFunc(b.order, func(x, y int64) int { return cmp.Compare(b.records[x].Time, b.records[y].Time) })
		return
	}
	// Plain numbers are sorted in half the time.
	for i := range b.order {
		b.order[i] |= (b.records[i].Time - oldest) << placeBits
	}
	slices.Sort(b.order)
}

// sorted returns the place of the record that is the i-th by time.
func (b *Batch) sorted(i int) int {
	if b.ordered {
		return i
	}
	return int(b.order[i] & (1<<placeBits - 1))
}

// Unreadable is a line that could not be read.
type Unreadable struct {
	// File is the name of the file, and Line the number of the line in it, from 1.
	File string
	Line int64
	// Text is the line, cut after [MaxSample] bytes, and Reason what is wrong with it.
	Text, Reason string
}

// MaxSample is how many bytes of an unreadable line are kept.
const MaxSample = 240

// text returns the text of the field. It shares the batch's memory.
func (b *Batch) text(f Field) string {
	if f.size == 0 {
		return ""
	}
	return unsafe.String(&b.buf[f.off], int(f.size))
}

// reset makes the batch empty.
func (b *Batch) reset() {
	b.buf, b.records, b.extra, b.bad = b.buf[:0], b.records[:0], b.extra[:0], nil
	b.order = b.order[:0]
	b.lines, b.badAll, b.tooLong, b.newest, b.ordered, b.left, b.found = 0, 0, 0, 0, true, 0, 0
}

// Request is one request of a log.
type Request struct {
	*Record
	// Spread is the time of the request if all requests with the same whole second are spread
	// evenly over it. If the log has more precise times, it is [Record.Time].
	Spread int64

	batch *Batch
	index int32
}

// Prefetch asks for the memory of the line, from the client's address on. It costs next to nothing.
// Another core has parsed the line, so who reads it without having asked for it waits about as long
// as a decision takes.
func (r *Request) Prefetch() {
	prefetch.At(uintptr(unsafe.Pointer(unsafe.SliceData(r.batch.buf))) + uintptr(r.IP.off))
}

// Text returns the text of one of the record's fields. It is valid until the stretch is released.
func (r *Request) Text(f Field) string { return r.batch.text(f) }

// Entry returns the value of the i-th of [Options.Entries], or "". It is valid until the
// stretch is released.
func (r *Request) Entry(i int) string {
	return r.batch.text(r.batch.extra[int(r.index)*r.batch.extras+i])
}
