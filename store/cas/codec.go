package cas

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
)

// version begins every value. Values of another version are not read.
const version = 1

// codec reads or writes a value. What a value consists of is described once for both, so that they
// cannot differ. Once it has failed, it reads zeros.
type codec struct {
	writes bool
	out    []byte // what was written
	left   []byte // what is still to be read
	err    error
}

// encode writes a value as code describes it.
func encode(code func(*codec)) []byte {
	c := codec{writes: true}
	code(&c)
	return c.out
}

// decode reads a value as code describes it. It returns an error if the bytes are no such value.
func decode(b []byte, code func(*codec)) error {
	c := codec{left: b}
	code(&c)
	return c.end()
}

var errShort = errors.New("it ends before its time")

func (c *codec) fail(err error) {
	if c.err == nil && err != nil {
		c.err, c.left = err, nil
	}
}

func (c *codec) end() error {
	if c.err == nil && len(c.left) > 0 {
		c.err = fmt.Errorf("%d bytes follow its end", len(c.left))
	}
	return c.err
}

func (c *codec) version() {
	v := byte(version)
	if octet(c, &v); v != version {
		c.fail(fmt.Errorf("it begins with version %d, and %d is known", v, version))
	}
}

func octet[T ~uint8](c *codec, v *T) {
	if c.writes {
		c.out = append(c.out, byte(*v))
	} else {
		*v = T(c.byte())
	}
}

// unsigned codes a number from 0 to most.
func unsigned[T ~int | ~int64 | ~uint64](c *codec, v *T, most uint64) {
	if c.writes {
		c.out = binary.AppendUvarint(c.out, uint64(*v))
	} else {
		*v = T(c.uint(most))
	}
}

// maxTime bounds every time in a value, in µs, so that no sum of two overflows. It is about
// 285 years.
const maxTime = 1 << 53

// signed codes a point in time or a length of time, in µs.
func signed[T ~int64](c *codec, v *T) {
	if c.writes {
		c.out = binary.AppendVarint(c.out, int64(*v))
	} else {
		*v = T(c.micros())
	}
}

// maxDuration is the longest time that a decision can tell, in µs.
const maxDuration = int64(headgate.MaxRefill/time.Microsecond) + 1

func (c *codec) duration(d *time.Duration) {
	us := d.Microseconds()
	if signed(c, &us); us < 0 || us > maxDuration {
		c.fail(errors.New("a time in it is out of bounds"))
		us = 0
	}
	*d = time.Duration(us) * time.Microsecond
}

// flags codes up to eight bits, the first of them as the lowest.
func (c *codec) flags(all ...*bool) {
	var b byte
	for i, f := range all {
		if *f {
			b |= 1 << i
		}
	}
	octet(c, &b)
	for i, f := range all {
		*f = b&(1<<i) != 0
	}
}

// text codes a text of at most so many bytes.
func (c *codec) text(s *string, most int) {
	n := len(*s)
	switch unsigned(c, &n, uint64(most)); {
	case c.writes:
		c.out = append(c.out, *s...)
	case n > len(c.left):
		c.fail(errShort)
		*s = ""
	default:
		*s = string(c.left[:n])
		c.left = c.left[n:]
	}
}

// list codes a list of at most so many items.
func list[T any](c *codec, all *[]T, most uint64, code func(*T)) {
	n := len(*all)
	if unsigned(c, &n, most); !c.writes {
		*all = nil
	}
	for i := 0; i < n && c.err == nil; i++ {
		if !c.writes {
			*all = append(*all, *new(T))
		}
		code(&(*all)[i])
	}
}

func (c *codec) byte() byte {
	if len(c.left) == 0 {
		c.fail(errShort)
		return 0
	}
	b := c.left[0]
	c.left = c.left[1:]
	return b
}

func (c *codec) uint64() uint64 {
	if len(c.left) < 8 {
		c.fail(errShort)
		return 0
	}
	v := binary.BigEndian.Uint64(c.left)
	c.left = c.left[8:]
	return v
}

// uint reads a number, which must not be above most.
func (c *codec) uint(most uint64) uint64 {
	v, n := binary.Uvarint(c.left)
	switch {
	case n == 0:
		c.fail(errShort)
		return 0
	case n < 0 || v > most:
		c.fail(errors.New("a number in it is out of bounds"))
		return 0
	}
	c.left = c.left[n:]
	return v
}

// time reads a point in time.
func (c *codec) time() headgate.Instant { return headgate.Instant(c.micros()) }

// micros reads a length of time in µs.
func (c *codec) micros() int64 {
	v, n := binary.Varint(c.left)
	switch {
	case n == 0:
		c.fail(errShort)
		return 0
	case n < 0 || v > maxTime || v < -maxTime:
		c.fail(errors.New("a time in it is out of bounds"))
		return 0
	}
	c.left = c.left[n:]
	return v
}
