package advise

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/routes"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/tune/accesslog"
	"github.com/headgate/headgate/tune/clients"
)

// Options say what to look at.
type Options struct {
	// Per is the entry that clients are told apart by: ip (whose IPv6 addresses count by
	// their /64), user, or one of Entries. Empty means ip.
	Per string
	// Entries are those of accesslog.Log.Entries.
	Entries []string
	// Tariff is one of Entries, by whose values there are limits of their own; empty for
	// none.
	Tariff string
	// Routes are patterns such as "GET /search" that get limits of their own.
	Routes []string
	// Percentile says what part of the clients, in percent, the limits are to leave alone.
	// Zero means DefaultPercentile.
	Percentile float64
	// Headroom is what their demand is multiplied by. Zero means DefaultHeadroom.
	Headroom float64
}

// The defaults of [Options], and what is too little to advise from.
const (
	DefaultPercentile = 99.9
	DefaultHeadroom   = 1.5
	// MinClients is how many clients there must be on most days, and MinTime how long the
	// log must be.
	MinClients = 50
	MinTime    = 24 * time.Hour
	// maxTiers bounds the values of Tariff.
	maxTiers = 50
)

// lengths are those of the windows.
var lengths = [...]time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour}

// usage is what is known of a client, within a group.
type usage struct {
	requests uint32
	day      int32 // the last day it was seen on, counted from 1970; zero for none
	robot    bool
	known    bool
	outlier  bool
	group    uint16
	windows  [len(lengths)]window
}

// window is the current window of one length, and the most that any had.
type window struct {
	at          int32 // which window it is
	count, most uint32
}

// group is a part of the requests that gets limits of its own. The first one is all.
type group struct {
	route, tier string
	requests    int64
}

// Observer counts what clients do. It is not for concurrent use. Make one with [New].
type Observer struct {
	o       Options
	per     int // the place of Per among the entries; -1 for ip and -2 for user
	tariff  int
	table   routes.Table
	groups  []group
	tiers   map[string]uint16
	found   map[string]uint16 // the group of a route, by method and path
	clients *clients.Table[usage]
	robots  clients.Robots
	days    map[int32]int
	from    int64
	to      int64
	all     int64
	limited int64
	nobody  int64
	key     []byte
}

// New returns an observer that has seen nothing. The error says what is wrong with the
// options.
func New(o Options) (*Observer, error) {
	o.Per, o.Percentile, o.Headroom = cmp.Or(o.Per, "ip"), cmp.Or(o.Percentile, DefaultPercentile), cmp.Or(o.Headroom, DefaultHeadroom)
	b := &Observer{o: o, per: slices.Index(o.Entries, o.Per), tariff: slices.Index(o.Entries, o.Tariff), groups: []group{{}}, tiers: make(map[string]uint16), found: make(map[string]uint16), clients: clients.New[usage](clientsMost), days: make(map[int32]int)}
	switch {
	case b.per >= 0:
	case o.Per == "ip":
		b.per = -1
	case o.Per == "user":
		b.per = -2
	default:
		return nil, fmt.Errorf("headgate: clients cannot be told apart by %q: the log has ip, user and what was mapped (%s)", o.Per, strings.Join(o.Entries, ", "))
	}
	if o.Tariff != "" && b.tariff < 0 {
		return nil, fmt.Errorf("headgate: there can be no tariff by %q, which was not mapped", o.Tariff)
	}
	if o.Percentile < 50 || o.Percentile > 100 || o.Headroom < 1 || o.Headroom > 100 {
		return nil, fmt.Errorf("headgate: the percentile is %g and the headroom %g, must be 50 to 100 and 1 to 100", o.Percentile, o.Headroom)
	}
	for _, pattern := range o.Routes {
		if problem := b.table.Add(pattern); problem != "" {
			return nil, fmt.Errorf("headgate: the route %s", problem)
		}
		b.groups = append(b.groups, group{route: pattern})
	}
	return b, nil
}

// clientsMost bounds the clients of all groups together.
const clientsMost = 1 << 20

// Add counts the requests of a stretch.
func (b *Observer) Add(s *accesslog.Stretch) {
	for i := range s.Requests {
		b.add(&s.Requests[i])
	}
}

func (b *Observer) add(r *accesslog.Request) {
	if b.all == 0 {
		b.from = r.Spread
	}
	b.to = r.Spread
	b.all++
	if r.Status == http.StatusTooManyRequests {
		b.limited++
	}
	b.key = append(b.key[:0], 0, 0)
	if b.key = b.appendClient(b.key, r); len(b.key) == 2 {
		b.nobody++
		return
	}
	b.count(0, r)
	if g := b.routeOf(r); g != 0 {
		b.count(g, r)
	}
	if b.tariff >= 0 {
		if g := b.tierOf(r.Entry(b.tariff)); g != 0 {
			b.count(g, r)
		}
	}
}

// appendClient appends the client's name.
func (b *Observer) appendClient(dst []byte, r *accesslog.Request) []byte {
	switch b.per {
	case -2:
		return append(dst, r.Text(r.User)...)
	case -1:
		return appendNetwork(dst, r.Text(r.IP))
	}
	return append(dst, r.Entry(b.per)...)
}

// appendNetwork appends the network of an IPv6 address, and any other text as it is.
func appendNetwork(dst []byte, text string) []byte {
	if strings.IndexByte(text, ':') >= 0 {
		if a, err := netip.ParseAddr(text); err == nil {
			if p, err := a.Unmap().WithZone("").Prefix(min(64, a.Unmap().BitLen())); err == nil {
				return p.Addr().AppendTo(dst)
			}
		}
	}
	return append(dst, text...)
}

// count counts a request for its client in a group. The key has the client's name behind
// the two bytes of the group.
func (b *Observer) count(g uint16, r *accesslog.Request) {
	b.groups[g].requests++
	b.key[0], b.key[1] = byte(g>>8), byte(g)
	u := b.clients.Find(string(b.key))
	if u == nil {
		return
	}
	if !u.known {
		u.known, u.group, u.robot = true, g, b.robots.Is(r.Text(r.Agent))
	}
	u.requests++
	if day := int32(r.Time / (24 * time.Hour).Microseconds()); u.day != day {
		if u.day = day; g == 0 && !u.robot {
			b.days[day]++
		}
	}
	for i := range lengths {
		w := &u.windows[i]
		if at := int32(r.Spread / lengths[i].Microseconds()); at != w.at {
			w.at, w.count = at, 0
		}
		w.count++
		w.most = max(w.most, w.count)
	}
}

// maxFound bounds what is remembered of paths.
const maxFound = 1 << 14

// routeOf is the group of the request's route; zero if it has none.
func (b *Observer) routeOf(r *accesslog.Request) uint16 {
	if len(b.o.Routes) == 0 {
		return 0
	}
	path, _, _ := strings.Cut(r.Text(r.Target), "?")
	key := r.Text(r.Method) + " " + path
	g, known := b.found[key]
	if !known {
		if len(b.found) == maxFound {
			clear(b.found)
		}
		if p, err := spelling.Read(path, 0); err == nil {
			pattern := b.table.Find(&http.Request{Method: strings.Clone(r.Text(r.Method)), URL: p.URL()}, &p)
			if i := slices.Index(b.o.Routes, pattern); i >= 0 {
				g = uint16(i + 1)
			}
		}
		b.found[key] = g
	}
	return g
}

// tierOf is the group of a tier; zero if the request has none, or there are too many.
func (b *Observer) tierOf(tier string) uint16 {
	if tier == "" {
		return 0
	}
	g, known := b.tiers[tier]
	if !known && len(b.tiers) < maxTiers {
		g = uint16(len(b.groups))
		tier = strings.Clone(tier)
		b.groups = append(b.groups, group{tier: tier})
		b.tiers[tier] = g
	}
	return g
}
