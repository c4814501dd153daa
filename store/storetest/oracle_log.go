package storetest

import (
	"slices"

	"github.com/headgate/headgate"
)

// obviousLog has the time of every request and its units, whatever list of limits it came
// under, and for how long each list has asked that its units be remembered.
type obviousLog struct {
	list    []headgate.Limit // the one that is looking
	charged []charged
	asked   []asked
	// others is how many charges came while another list asked for a longer memory than
	// the one that charged, since the log was squeezed for the last time.
	others int
}

type charged struct{ at, units int64 }

// asked says that until an end everything is to be remembered that is younger than age.
// most is the largest count of those who asked.
type asked struct{ age, end, most int64 }

// remembers reports whether what was charged at a time is not forgotten at now.
func (s *obviousLog) remembers(at, now int64) bool {
	return slices.ContainsFunc(s.asked, func(a asked) bool { return now < a.end && now-at < a.age })
}

// memory is how old what is remembered at now can be.
func (s *obviousLog) memory(now int64) int64 {
	longest := int64(0)
	for _, a := range s.asked {
		if now < a.end {
			longest = max(longest, a.age)
		}
	}
	return longest
}

// forget drops what is forgotten at now, and who has asked in vain since.
func (s *obviousLog) forget(now int64) {
	s.charged = slices.DeleteFunc(s.charged, func(c charged) bool { return c.units == 0 || !s.remembers(c.at, now) })
	s.asked = slices.DeleteFunc(s.asked, func(a asked) bool { return a.end <= now })
	if len(s.asked) == 0 {
		s.others = 0
	}
}

// newest is the time of the last charge of which units are left.
func (s *obviousLog) newest() (int64, bool) {
	for i := len(s.charged) - 1; i >= 0; i-- {
		if s.charged[i].units > 0 {
			return s.charged[i].at, true
		}
	}
	return 0, false
}

// follow: what was forgotten when the newest unit came stays so.
func (s *obviousLog) follow(_ *headgate.Limit, now int64) {
	at, some := s.newest()
	if !some || at <= now {
		return
	}
	s.forget(at)
	for i := range s.charged {
		s.charged[i].at = min(s.charged[i].at, now)
	}
	for i := range s.asked {
		a := &s.asked[i]
		a.end = min(a.end, now+a.age+a.age/8)
	}
}

// inside is how many units are inside the last micros at now.
func (s *obviousLog) inside(micros, now int64) int64 {
	used := int64(0)
	for _, c := range s.charged {
		if c.at+micros > now && s.remembers(c.at, now) {
			used += c.units
		}
	}
	return used
}

func (s *obviousLog) free(l *headgate.Limit, now int64) int64 {
	return l.Count - s.inside(l.Period.Microseconds(), now)
}

// need is the longest period and the largest count of the windows that are looking.
func (s *obviousLog) need() (age, most int64) {
	for i := range s.list {
		if l := &s.list[i]; l.Algorithm == headgate.SlidingWindow {
			age, most = max(age, l.Period.Microseconds()), max(most, l.Count)
		}
	}
	return age, most
}

func (s *obviousLog) charge(_ *headgate.Limit, now, cost int64) {
	age, _ := s.need()
	if cost = min(cost, headgate.MaxCount-s.inside(age, now)); cost <= 0 {
		return
	}
	before := s.memory(now)
	s.forget(now)
	s.ask(now)
	if age < before {
		s.others++
		if s.others >= 1024 || s.inside(before, now) > 2*headgate.MaxCount {
			s.others = 0
			s.squeeze(now, age)
		}
	}
	s.charged = append(s.charged, charged{now, cost})
}

// ask sees to it that what is charged now is remembered for as long as its list needs.
func (s *obviousLog) ask(now int64) {
	age, most := s.need()
	slices.SortFunc(s.asked, func(a, b asked) int { return int(max(-1, min(1, a.age-b.age))) })
	for i := range s.asked {
		if a := &s.asked[i]; a.age >= age && a.end >= now+age {
			a.most = max(a.most, most)
			return
		}
	}
	own := asked{age, now + age + age/8, most}
	for len(s.asked) > 0 && s.asked[0].age <= age {
		own.most = max(own.most, s.asked[0].most)
		s.asked = s.asked[1:]
	}
	if len(s.asked) == 4 { // no more than four ask: the next one lasts longer
		next := &s.asked[0]
		next.end, next.most = max(next.end, own.end), max(next.most, own.most)
		return
	}
	s.asked = append(s.asked, own)
}

// squeeze gives all units that are older than age one time, that of the newest of them:
// but for those that have fewer newer units than the largest count.
func (s *obviousLog) squeeze(now, age int64) {
	most := int64(0)
	for _, a := range s.asked {
		most = max(most, a.most)
	}
	all, last := int64(0), int64(-1)
	for i := len(s.charged) - 1; i >= 0; i-- {
		c := s.charged[i]
		if last < 0 && c.at <= now-age && s.inside(now-c.at, now) >= most {
			last = c.at
		}
		all += c.units
	}
	for i := range s.charged {
		c := &s.charged[i]
		if c.at <= last {
			c.at = last
			gone := min(c.units, max(0, all-headgate.MaxCount))
			c.units, all = c.units-gone, all-gone
		}
	}
}

func (s *obviousLog) refund(_ *headgate.Limit, _, cost, at, _ int64) {
	if newest, some := s.newest(); some {
		s.forget(newest)
	}
	for i := len(s.charged) - 1; i >= 0; i-- {
		if c := &s.charged[i]; at == 0 || c.at <= at {
			back := min(c.units, cost)
			c.units -= back
			cost -= back
		}
	}
	s.charged = slices.DeleteFunc(s.charged, func(c charged) bool { return c.units == 0 })
	if len(s.charged) == 0 {
		s.asked, s.others = nil, 0
	}
}

func (s *obviousLog) busy(l *headgate.Limit, now int64) int64 {
	longest := int64(0)
	for _, c := range s.charged {
		remembered := int64(0)
		for _, a := range s.asked {
			remembered = max(remembered, min(a.end, c.at+a.age))
		}
		longest = max(longest, min(c.at+l.Period.Microseconds(), remembered)-now)
	}
	return longest
}
