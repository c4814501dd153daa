package insight

import "unsafe"

// sketch follows the keys with the largest sums of weights, in bounded memory (Space-Saving;
// Metwally et al., 2005). When it is full, a new key replaces the one with the smallest count. The
// new key starts from that count, which becomes its error: its count is at most that much too high.
// All counts add up to the total, so the smallest of m counts is at most total/m.
//
// Keys are identified by a 64-bit hash with a secret seed.
type sketch struct {
	entries  []entry
	index    []uint16 // open addressing by hash: index in entries plus one, 0 if free
	most     int      // the maximum number of entries
	total    int64
	least    int64 // a lower bound of all counts
	cursor   int   // where the search for the smallest count continues
	room     int   // bytes left for keys
	length   int   // to which keys are cut in this step, in bytes; 0 if none is
	replaced bool  // A key was replaced.
}

// entry is one key that is followed.
type entry struct {
	hash   uint64
	count  int64
	error  int64
	key    []byte
	minute int64  // units within the current minute
	used   uint16 // the used part of the limit after the last decision, in thousandths
	tier   uint8
	first  uint8 // the minute of the step in which it was counted first
	last   uint8 // and last
	cut    bool  // key is only the beginning of the key
}

// show sets what is shown beside a count. There may be no entry for want of memory.
func (e *entry) show(used uint16, tier uint8) {
	if e != nil {
		e.used, e.tier = used, tier
	}
}

const (
	entryBytes = int(unsafe.Sizeof(entry{}))
	// firstEntries is the initial capacity of a sketch, in entries.
	firstEntries = 8
	// mostCounted is how much a sketch counts in all. So no sum over steps and instances overflows,
	// whatever requests cost.
	mostCounted = 1 << 56
	// mostInMinute is how many units of a key are counted in a minute. So no sum over minutes and a
	// hundred instances overflows.
	mostInMinute = 1 << 48
)

// budget takes bytes from a budget of memory. It reports false, and takes nothing, if they are not
// available. A negative number is given back.
type budget func(bytes int) bool

// add adds weight to a key in this minute of the step, in which it asked for so many units. It returns
// the key's entry, which is valid until the next add, or nil if there is no memory for a single one.
func (s *sketch) add(hash uint64, key []byte, weight, units int64, minute uint8, memory budget) *entry {
	weight = min(weight, mostCounted-s.total)
	s.total += weight
	place, slot := s.find(hash)
	if place >= 0 {
		e := &s.entries[place]
		e.count += weight
		e.minute = addMinute(e.minute, units)
		e.last = minute
		return e
	}
	if len(s.entries) < cap(s.entries) || s.grow(memory) {
		// The entry may have been used before reset; then its key's memory is reused.
		s.entries = s.entries[:len(s.entries)+1]
		e := &s.entries[len(s.entries)-1]
		*e = entry{hash: hash, count: weight, key: e.key, minute: addMinute(0, units), first: minute, last: minute}
		s.setKey(e, key, memory)
		s.insert(hash, len(s.entries)-1)
		return e
	}
	if len(s.entries) == 0 {
		return nil
	}
	place = s.smallest()
	e := &s.entries[place]
	before := e.hash
	s.replaced = true
	// Assigning single fields keeps the key's memory and avoids writing a pointer.
	e.hash, e.error, e.minute, e.cut = hash, e.count, addMinute(0, units), false
	e.first, e.last = minute, minute
	e.count += weight
	// The search for the new key ended at the free slot, so the new key can be inserted there. remove
	// looks for the old key's slot, which comes before any free one in the old key's search.
	s.index[slot] = uint16(place + 1)
	s.remove(before, place)
	s.setKey(e, key, memory)
	return e
}

// addMinute adds weight to sum, up to mostInMinute.
func addMinute(sum, weight int64) int64 { return min(sum+weight, mostInMinute) }

// grow makes room for more entries. It reports false if there is no room or memory for them, or if
// a key was replaced already: from then on a new key must start from the smallest count.
func (s *sketch) grow(memory budget) bool {
	now := cap(s.entries)
	next := min(max(2*now, firstEntries), s.most)
	if s.replaced || next <= now || !memory(sketchBytes(next)-sketchBytes(now)) {
		return false
	}
	s.entries = append(make([]entry, 0, next), s.entries...)
	s.index = make([]uint16, indexLen(next))
	for i := range s.entries {
		s.insert(s.entries[i].hash, i)
	}
	return true
}

// indexLen returns the length of the index for so many entries: a power of two that leaves at least
// three quarters of the index free, so that most searches end at the first slot.
func indexLen(entries int) int {
	n := 4
	for n < 4*entries {
		n *= 2
	}
	return n
}

// sketchBytes returns the memory of so many entries, without their keys.
func sketchBytes(entries int) int {
	if entries == 0 {
		return 0
	}
	return entries*entryBytes + 2*indexLen(entries)
}

// smallest returns the index of an entry with the smallest count. Counts only grow, so the search
// continues where it stopped, and computes the smallest count anew after each full round.
func (s *sketch) smallest() int {
	for range 2 {
		for range s.entries {
			if s.cursor++; s.cursor >= len(s.entries) {
				s.cursor = 0
			}
			if s.entries[s.cursor].count <= s.least {
				return s.cursor
			}
		}
		s.least = s.entries[0].count
		for i := range s.entries {
			s.least = min(s.least, s.entries[i].count)
		}
	}
	return s.cursor
}

// setKey copies the key into the entry. If there is no room, the longest keys are cut.
func (s *sketch) setKey(e *entry, key []byte, memory budget) {
	if s.length > 0 && len(key) > s.length {
		key, e.cut = key[:s.length], true
	}
	if len(key) > cap(e.key) {
		size := keySize(len(key))
		if size-cap(e.key) > s.room && s.cutLongest(e, len(key), memory) {
			s.setKey(e, key, memory)
			return
		}
		if more := size - cap(e.key); more <= s.room && memory(more) {
			s.room -= more
			e.key = make([]byte, 0, size)
		} else {
			key, e.cut = key[:cap(e.key)], true
		}
	}
	e.key = e.key[:len(key)]
	copy(e.key, key)
}

// keySize returns the memory of a key of n bytes: rounded up to 16, like the allocator does.
func keySize(n int) int { return (n + 15) &^ 15 }

// cutLongest cuts the longest keys so that all of them and the next key of e, of n bytes, fit in half of
// the room. So long keys do not leave others without a name, and are cut a few times in a step only. It
// reports false if they were cut to that length already.
func (s *sketch) cutLongest(e *entry, n int, memory budget) bool {
	e.key = e.key[:0]
	room, lengths := s.room, []int{n}
	for i := range s.entries {
		room += cap(s.entries[i].key)
		lengths = append(lengths, len(s.entries[i].key))
	}
	length := keySize(longest(lengths, room/2))
	if s.length > 0 && length >= s.length {
		return false
	}
	s.length = length
	freed := 0
	for i := range s.entries {
		o := &s.entries[i]
		o.cut = o.cut || len(o.key) > length
		o.key = o.key[:min(len(o.key), length)]
		if size := keySize(len(o.key)); size < cap(o.key) {
			freed += cap(o.key) - size
			o.key = append(make([]byte, 0, size), o.key...)
		}
	}
	s.room += freed
	memory(-freed)
	return true
}

func (s *sketch) slot(hash uint64) int { return int(hash) & (len(s.index) - 1) }

// find returns the index of a key's entry, or -1 and the free slot of the index at which the search
// ended.
func (s *sketch) find(hash uint64) (place, slot int) {
	if len(s.index) == 0 {
		return -1, -1
	}
	mask := len(s.index) - 1
	for slot = s.slot(hash); s.index[slot] != 0; slot = (slot + 1) & mask {
		if place = int(s.index[slot]) - 1; s.entries[place].hash == hash {
			return place, slot
		}
	}
	return -1, slot
}

func (s *sketch) insert(hash uint64, place int) {
	mask := len(s.index) - 1
	i := s.slot(hash)
	for s.index[i] != 0 {
		i = (i + 1) & mask
	}
	s.index[i] = uint16(place + 1)
}

// remove removes the key, whose entry is at place, from the index. It moves up the slots behind it
// that a search would no longer reach.
func (s *sketch) remove(hash uint64, place int) {
	mask := len(s.index) - 1
	hole := s.slot(hash)
	for int(s.index[hole]) != place+1 {
		hole = (hole + 1) & mask
	}
	for i := (hole + 1) & mask; s.index[i] != 0; i = (i + 1) & mask {
		home := s.slot(s.entries[s.index[i]-1].hash)
		if (i-home)&mask >= (i-hole)&mask {
			s.index[hole] = s.index[i]
			hole = i
		}
	}
	s.index[hole] = 0
}

// absent returns the largest possible sum of a key that is not followed.
func (s *sketch) absent() int64 {
	if !s.replaced {
		return s.lost()
	}
	least := s.entries[0].count
	for i := range s.entries {
		least = min(least, s.entries[i].count)
	}
	return least
}

// lost returns what was counted without any entry, because there was no memory for one.
func (s *sketch) lost() int64 {
	if len(s.entries) == 0 {
		return s.total
	}
	return 0
}

// reset removes all keys, and keeps their memory.
func (s *sketch) reset() {
	s.entries = s.entries[:0]
	clear(s.index)
	s.total, s.least, s.cursor, s.length, s.replaced = 0, 0, 0, 0, false
}
