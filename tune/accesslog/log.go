// Package accesslog reads the access logs of web servers, proxies and load balancers. It turns many
// formats into one stream of requests, ordered by time.
//
// # Basics
//
//	log, err := accesslog.Open(ctx, []string{"access.log.1.gz", "access.log"}, accesslog.Options{})
//	if err != nil {
//		return err
//	}
//	defer log.Close()
//	for {
//		stretch, err := log.Next()
//		if errors.Is(err, io.EOF) {
//			break
//		}
//		if err != nil {
//			return err
//		}
//		for i := range stretch.Requests {
//			r := &stretch.Requests[i]
//			fmt.Println(r.Time, r.Text(r.IP), r.Text(r.Target))
//		}
//		stretch.Release()
//	}
//
// The format is detected from the first lines unless [Options] names it. Files that are compressed
// with gzip or zstd are recognized by their first bytes.
//
// # How it works
//
// A file is cut into blocks at the ends of lines. Several workers parse blocks, each into a
// [Batch]: the bytes of the block, and for each line a [Record] that says where in these bytes its
// fields are. Nothing is copied or allocated for a line. The requests of all files are merged by
// time, and returned as a [Stretch]. When a stretch is released, its blocks are reused for later
// lines.
//
// # Caveats
//
// A line that cannot be read is counted and does not end the reading. [Log.Stats] has the first few
// of them. Texts of a request are valid until its stretch is released.
package accesslog

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Options say how to read logs. The zero Options detects the format.
type Options struct {
	// Format is one of [Formats], or a log_format of nginx, Apache or Envoy. Empty means
	// auto.
	Format string
	// Maps say what certain fields contain, in addition to what is known for the format.
	Maps []Map
	// Trust are the proxies whose statements about the client's address are believed. If a log has
	// a list of addresses, as in X-Forwarded-For, the client is the last one that is not in Trust.
	Trust []netip.Prefix
	// Slack is how far lines may be out of order. Lines are sorted correctly if no line is later in
	// the log than another whose time is larger by more than Slack. Zero means DefaultSlack;
	// negative means no sorting.
	Slack time.Duration
	// Stdin is what the name "-" means. If it is nil, "-" is not allowed.
	Stdin io.Reader
	// Workers is how many goroutines parse; zero means one for each core.
	Workers int
}

// DefaultSlack is used if Options.Slack is zero.
const DefaultSlack = time.Minute

// maxPending is how many blocks may wait for sorting. Beyond that, the oldest requests are returned
// in whatever order they are.
const maxPending = 96

// Log reads several files as one. It is not safe for concurrent use, except for [Log.Read].
type Log struct {
	options Options
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup // goroutines for which Close waits
	work    chan *Batch
	free    chan *Batch
	closing []*source

	waiting []*start  // files that are not open yet, the one that begins last first
	open    []*source // files that are being read
	pending []Request // in the order of time
	blocks  int       // blocks with requests in pending
	clock   int64     // the time of the last request that was returned
	spread  int64     // its Spread
	out     Stretch

	found uint64 // see Batch
	read  atomic.Int64
	size  int64
	stats Stats
}

// Stats are counts of what was read so far.
type Stats struct {
	// Lines is how many lines there were, empty ones among them.
	Lines int64
	// Unreadable is how many of them could not be read, and Samples are the first few.
	Unreadable int64
	Samples    []Unreadable
	// Late is how many requests came too late to be sorted. They get the time of the request before
	// them.
	Late int64
	// Coarse is how many requests have times of whole seconds.
	Coarse int64
	// Broken are the compressed files that could not be read to their end, each with the reason. What
	// was read of them counts.
	Broken []string
	// Unmapped are the [Options.Maps] whose field no line has a value for, as NAME=FIELD.
	Unmapped []string
	// Addresses says that some line has a client's address.
	Addresses bool
}

// start is a file and the time at which it begins.
type start struct {
	name string
	at   int64
	file *file
}

// source is a file that is being read.
type source struct {
	file     *file
	batches  chan *Batch
	err      error // why there are no more batches
	frontier int64 // the latest time that was read
}

// Stretch is a part of the requests, ordered by time.
type Stretch struct {
	// Requests are valid until Release is called.
	Requests []Request

	log     *Log
	release []*Batch
}

// Release frees the memory of the requests for reuse.
func (s *Stretch) Release() {
	for _, b := range s.release {
		select {
		case s.log.free <- b:
		default:
		}
	}
	s.release, s.Requests = s.release[:0], s.Requests[:0]
}

// Open opens logs and looks at their first lines. Files that begin later are read later, so many
// files need no more memory than one. The error comes from the system, is a [*FormatError], or is
// about the options.
func Open(ctx context.Context, names []string, o Options) (*Log, error) {
	if o.Slack == 0 {
		o.Slack = DefaultSlack
	}
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	l := &Log{options: o, clock: math.MinInt64, spread: math.MinInt64, size: -1}
	l.ctx, l.cancel = context.WithCancel(ctx)
	l.work = make(chan *Batch, 2*o.Workers)
	l.free = make(chan *Batch, 2*maxPending)
	l.out.log = l
	var errs []error
	if len(names) == 0 {
		errs = append(errs, errors.New("headgate: no log was given"))
	}
	if total := sizeOf(names); total > 0 {
		l.size = total
	}
	for i, name := range names {
		if name == "-" && slices.Contains(names[:i], "-") {
			errs = append(errs, errors.New("headgate: the standard input is given twice"))
			continue
		}
		s, err := l.look(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		l.waiting = append(l.waiting, s)
	}
	if errs != nil {
		return nil, errors.Join(append(errs, l.Close())...)
	}
	// If files begin at the same time, they are read in the order of their names' arguments.
	slices.Reverse(l.waiting)
	slices.SortStableFunc(l.waiting, func(a, b *start) int { return cmp.Compare(b.at, a.at) })
	for range o.Workers {
		l.running.Go(l.parse)
	}
	return l, nil
}

// sizeOf returns the size of all files, or zero if it is not known.
func sizeOf(names []string) (total int64) {
	for _, name := range names {
		size, regular := regular(name)
		if !regular {
			return 0
		}
		total += size
	}
	return total
}

// sampleLines is how many lines are used to detect a file's format.
const sampleLines = 200

// look detects the format of a file and when it begins.
func (l *Log) look(name string) (*start, error) {
	before := l.read.Load()
	f, err := l.options.openFile(name, &l.read)
	if err != nil {
		return nil, err
	}
	first, _, err := f.block(make([]byte, 0, blockBytes+MaxLine))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, f.end())
	}
	var lines [][]byte
	for _, line := range bytes.Split(first[:min(len(first), 2*MaxLine)], []byte{'\n'}) {
		if line = bytes.TrimSuffix(line, []byte{'\r'}); len(line) > 0 && len(lines) < sampleLines {
			lines = append(lines, line)
		}
	}
	if f.format, err = l.options.newFormat(lines); err != nil {
		if format, ok := errors.AsType[*FormatError](err); ok {
			format.File = name
		}
		return nil, errors.Join(err, f.end())
	}
	s := &start{name: name, at: math.MinInt64}
	sample := &Batch{format: f.format, extras: len(l.options.entries())}
	sample.buf = append(sample.buf, first...)
	sample.parse()
	if len(sample.records) > 0 {
		s.at = sample.records[sample.order[0]].Time
	}
	if _, again := regular(name); again {
		// The file is opened again when it is its turn.
		l.read.Store(before)
		format := f.format
		if err := f.end(); err != nil {
			return nil, fmt.Errorf("headgate: %w", err)
		}
		s.file = &file{name: name, format: format}
		return s, nil
	}
	// An input that can be read only once continues after these lines.
	f.in = io.MultiReader(bytes.NewReader(append(first, f.rest...)), f.in)
	f.rest, f.ended, f.skip = nil, false, false
	s.file = f
	return s, nil
}

// regular reports whether a file can be opened again, and returns its size.
func regular(name string) (size int64, ok bool) {
	if info, err := os.Stat(name); name != "-" && err == nil && info.Mode().IsRegular() {
		return info.Size(), true
	}
	return 0, false
}

// begin starts reading the waiting file that begins first.
func (l *Log) begin() error {
	s := l.waiting[len(l.waiting)-1]
	l.waiting = l.waiting[:len(l.waiting)-1]
	f := s.file
	if f.in == nil {
		opened, err := l.options.openFile(f.name, &l.read)
		if err != nil {
			return err
		}
		opened.format = f.format
		f = opened
	}
	src := &source{file: f, batches: make(chan *Batch, 4), frontier: s.at}
	l.open, l.closing = append(l.open, src), append(l.closing, src)
	if f.name == "-" {
		// A read of the standard input cannot be interrupted. Its goroutine ends with the input,
		// and then uses nothing of the log.
		go l.feed(src)
		return nil
	}
	l.running.Go(func() { l.feed(src) })
	return nil
}

// feed hands blocks of a file to the workers and, in their order, to the log.
func (l *Log) feed(src *source) {
	defer close(src.batches)
	head := src.file.format.head
	for {
		b := l.batch(src.file.format)
		buf, long, err := src.file.block(b.buf)
		if b.buf = buf; err != nil {
			if !errors.Is(err, io.EOF) {
				src.err = err
			}
			return
		}
		if head {
			head = false
			end := bytes.IndexByte(b.buf, '\n')
			if end < 0 {
				return
			}
			b.buf = append(b.buf[:0], b.buf[end+1:]...)
		}
		b.tooLong = long
		for _, to := range []chan *Batch{src.batches, l.work} {
			select {
			case to <- b:
			case <-l.ctx.Done():
				src.err = l.ctx.Err()
				return
			}
		}
	}
}

// batch returns an empty batch.
func (l *Log) batch(f *Format) *Batch {
	var b *Batch
	select {
	case b = <-l.free:
	default:
		b = &Batch{extras: len(l.options.entries()), ready: make(chan struct{}, 1), buf: make([]byte, 0, blockBytes+MaxLine)}
	}
	b.reset()
	b.format = f
	return b
}

// parse runs in each worker.
func (l *Log) parse() {
	for {
		select {
		case b := <-l.work:
			b.parse()
			b.ready <- struct{}{}
		case <-l.ctx.Done():
			return
		}
	}
}

// Entries returns the names of the entries that [Request.Entry] has, in their order.
func (l *Log) Entries() []string { return l.options.entries() }

// Stats returns the counts so far.
func (l *Log) Stats() Stats {
	s := l.stats
	s.Addresses = l.found&(1<<partIP) != 0
	for _, m := range l.options.Maps {
		to := sink{part: partEntry}
		if p, isPart := partNames[m.Name]; isPart {
			to.part = p
		} else {
			to.entry = slices.Index(l.options.entries(), m.Name)
		}
		if l.found&to.bit() == 0 {
			s.Unmapped = append(s.Unmapped, m.Name+"="+m.Field)
		}
	}
	return s
}

// Read returns how many bytes of the files were read, as they are on disk, and how many there are,
// or -1 if that is not known. It may be called at any time.
func (l *Log) Read() (read, all int64) { return l.read.Load(), l.size }

// Close ends the reading.
func (l *Log) Close() error {
	l.cancel()
	l.running.Wait()
	var err error
	for _, src := range l.closing {
		err = errors.Join(err, src.file.end())
	}
	for _, s := range l.waiting {
		err = errors.Join(err, s.file.end())
	}
	l.closing, l.waiting = nil, nil
	return err
}

// Next returns the next requests, ordered by time, and io.EOF after the last. The caller must
// release the stretch before the next call.
func (l *Log) Next() (*Stretch, error) {
	for {
		if err := l.ctx.Err(); err != nil {
			return nil, context.Cause(l.ctx)
		}
		src, err := l.behind()
		if err != nil {
			return nil, err
		}
		if src != nil {
			if err := l.take(src); err != nil {
				return nil, err
			}
		}
		if l.emit(src == nil) {
			return &l.out, nil
		}
		if src == nil && len(l.pending) == 0 {
			return nil, io.EOF
		}
	}
}

// behind returns the file whose reading has progressed the least in time, or nil if all were read.
func (l *Log) behind() (*source, error) {
	for {
		var least *source
		for _, s := range l.open {
			if least == nil || s.frontier < least.frontier {
				least = s
			}
		}
		if n := len(l.waiting); n > 0 && (least == nil || l.waiting[n-1].at <= least.frontier+l.slack()) {
			if err := l.begin(); err != nil {
				return nil, err
			}
			continue
		}
		return least, nil
	}
}

func (l *Log) slack() int64 { return max(0, l.options.Slack.Microseconds()) }

// take adds the next block of a file to the pending requests.
func (l *Log) take(src *source) error {
	var b *Batch
	var more bool
	select {
	case b, more = <-src.batches:
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
	if !more {
		l.open = slices.DeleteFunc(l.open, func(s *source) bool { return s == src })
		if f := src.file; f.broken != nil {
			l.stats.Broken = append(l.stats.Broken, fmt.Sprintf("%s: %v", f.name, f.broken))
		}
		return errors.Join(src.err, src.file.end())
	}
	select {
	case <-b.ready:
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
	for i := range b.bad {
		if len(l.stats.Samples) < maxBad {
			b.bad[i].Line += src.file.lines
			b.bad[i].File = src.file.name
			l.stats.Samples = append(l.stats.Samples, b.bad[i])
		}
	}
	src.file.lines += int64(b.lines + b.tooLong)
	l.found |= b.found
	l.stats.Lines += int64(b.lines + b.tooLong)
	l.stats.Unreadable += int64(b.badAll + b.tooLong)
	src.frontier = max(src.frontier, b.newest)
	if len(b.records) == 0 {
		l.free <- b
		return nil
	}
	old := len(l.pending)
	for _, i := range b.order {
		l.pending = append(l.pending, Request{Record: &b.records[i], batch: b})
	}
	l.blocks++
	if old == 0 || l.pending[old-1].Time <= l.pending[old].Time {
		return nil
	}
	// Only those before and behind the seam are not in order that are later than the first behind it, or
	// earlier than the last before it.
	later := func(r Request, at int64) int { return cmp.Compare(r.Time, at) }
	from, _ := slices.BinarySearchFunc(l.pending[:old], l.pending[old].Time+1, later)
	to, _ := slices.BinarySearchFunc(l.pending[old:], l.pending[old-1].Time, later)
	slices.SortStableFunc(l.pending[from:old+to], func(a, b Request) int { return cmp.Compare(a.Time, b.Time) })
	return nil
}

// emit moves pending requests before which no other can come any more to the stretch. It reports
// whether there are any.
func (l *Log) emit(all bool) bool {
	if len(l.pending) == 0 {
		return false
	}
	horizon := int64(math.MaxInt64)
	for _, s := range l.open {
		horizon = min(horizon, s.frontier)
	}
	if n := len(l.waiting); n > 0 {
		horizon = min(horizon, l.waiting[n-1].at)
	}
	if horizon != math.MaxInt64 && l.slack() > 0 {
		horizon -= l.slack()
	}
	n := len(l.pending)
	switch {
	case all:
	case l.blocks > maxPending:
		n /= 2
	default:
		// A second can be spread only when all of its requests are known.
		edge := horizon
		if edge != math.MaxInt64 {
			edge -= modulo(edge, second)
		}
		n, _ = slices.BinarySearchFunc(l.pending, edge, func(r Request, edge int64) int { return cmp.Compare(r.Time, edge) })
	}
	if n == 0 {
		return false
	}
	l.out.Requests = append(l.out.Requests[:0], l.pending[:n]...)
	l.pending = l.pending[:copy(l.pending, l.pending[n:])]
	l.place(l.out.Requests)
	return true
}

const second = int64(time.Second / time.Microsecond)

// place spreads the requests of each second, and updates the counts.
func (l *Log) place(requests []Request) {
	for i := 0; i < len(requests); {
		at := requests[i].Time
		n := i + 1
		for n < len(requests) && requests[n].Time == at {
			n++
		}
		group := requests[i:n]
		step := int64(0)
		if !group[0].Fine {
			step = second
		}
		for j := range group {
			r := &group[j]
			if r.Time < l.clock {
				l.stats.Late++
				r.Time = l.clock
			}
			if l.clock = r.Time; !r.Fine {
				l.stats.Coarse++
			}
			r.Spread = max(l.spread, r.Time+step*int64(j)/int64(len(group)))
			l.spread = r.Spread
			if r.batch.left--; r.batch.left == 0 {
				l.out.release = append(l.out.release, r.batch)
				l.blocks--
			}
		}
		i = n
	}
}

// modulo is never negative.
func modulo(a, m int64) int64 {
	if a %= m; a < 0 {
		a += m
	}
	return a
}
