package replay

// series counts requests over time, in at most maxPoints intervals of equal length.
type series struct {
	width  int64 // in microseconds
	first  int64 // the beginning of the first stretch
	end    int64 // of the current one
	points []Point
}

const maxPoints = 240

// Point is one stretch of time.
type Point struct {
	Requests int64 `json:"requests"`
	Denied   int64 `json:"denied"`
	// Limited is how many requests the server itself answered with 429.
	Limited int64 `json:"limited_in_log"`
}

// at returns the point of a time. Times do not go back.
func (s *series) at(micros int64) *Point {
	if micros < s.end {
		return &s.points[len(s.points)-1]
	}
	if s.points == nil {
		s.width = 1_000_000
		s.first = micros - micros%s.width
	}
	for micros-s.first >= s.width*maxPoints {
		s.double()
	}
	n := int((micros - s.first) / s.width)
	for len(s.points) <= n {
		s.points = append(s.points, Point{})
	}
	s.end = s.first + int64(n+1)*s.width
	return &s.points[n]
}

// double doubles the length of the intervals.
func (s *series) double() {
	n := 0
	for i := 0; i < len(s.points); i += 2 {
		p := s.points[i]
		if i+1 < len(s.points) {
			q := s.points[i+1]
			p = Point{p.Requests + q.Requests, p.Denied + q.Denied, p.Limited + q.Limited}
		}
		s.points[n] = p
		n++
	}
	s.points, s.width = s.points[:n], 2*s.width
}
