package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/insightapi"
	"github.com/headgate/headgate/store/layered/regions"
	"github.com/headgate/headgate/telemetry/insight"
)

// regionMistakes returns what is wrong with the settings of regions.
func (s *Settings) regionMistakes() (mistakes []string) {
	bad := func(format string, args ...any) { mistakes = append(mistakes, fmt.Sprintf(format, args...)) }
	if s.Region == "" {
		if len(s.Regions) > 0 || s.RegionHome != "" || s.RegionLease != 0 {
			bad("--region: it is missing, and there are other settings of regions")
		}
		return mistakes
	}
	if s.Store == memoryStore {
		bad("--region: the store of a region is shared by its servers; give it a --store across a network")
	}
	switch s.RegionHome {
	case "":
		bad("--region-home: it is missing; give the store in which the regions share limits")
	case memoryStore:
		bad("--region-home: the memory store belongs to one server; give a store that all regions reach")
	default:
		for _, p := range checkStore(s.RegionHome) {
			bad("--region-home: %s", p)
		}
	}
	o := s.regionOptions()
	if invalid, ok := errors.AsType[*headgate.InvalidError](o.Validate()); ok {
		for _, p := range invalid.Problems {
			flag := map[string]string{"region": "--region", "regions": "--regions", "lease": "--region-lease", "floor": "--region-floor"}[p.Field]
			bad("%s: %s", flag, p.Text)
		}
	}
	return mistakes
}

func (s *Settings) regionOptions() regions.Options {
	return regions.Options{Region: s.Region, Regions: s.Regions, Lease: s.RegionLease, Floor: s.RegionFloor}
}

// regionShares are this region's shares of global limits.
type regionShares struct {
	*regions.Layer
	home   closer
	began  time.Time
	logger *slog.Logger
}

// newRegionShares makes the layer that divides global limits among regions, around a store; nil if
// the server belongs to none.
func (a *App) newRegionShares(inner headgate.Store) (*regionShares, error) {
	s := &a.settings
	if s.Region == "" {
		if rules := globals(a.Policy().Rules()); len(rules) > 0 {
			s.Logger.Warn("rules have scope: global, but this server belongs to no region: it enforces the whole limits by its own store; give it --region", slog.String("rules", strings.Join(rules[:min(len(rules), 10)], ",")))
		}
		return nil, nil
	}
	own, ok := a.store.Store.(regions.Store)
	if !ok {
		return nil, &unavailable{"the region's shares", errors.New("the store " + a.store.Name() + " keeps no documents, or not yet")}
	}
	r := &regionShares{logger: s.Logger.With(slog.String("home", describeStore(s.RegionHome)))}
	var err error
	if r.home, err = backendOf(s.RegionHome).openLate(context.Background(), s.RegionHome, backendOptions{timeout: homeTimeout}, r.logger); err != nil {
		return nil, &unavailable{"the home of regions, " + describeStore(s.RegionHome) + ", cannot be used", err}
	}
	o := s.regionOptions()
	o.Store, o.Changed = own, r.changed
	if o.Home, ok = r.home.(regions.Home); !ok {
		r.home.Close()
		return nil, &unavailable{"the home of regions", errors.New("the store " + describeStore(s.RegionHome) + " keeps no documents, or not yet")}
	}
	if r.Layer, err = regions.New(inner, o); err != nil {
		r.home.Close()
		return nil, err
	}
	return r, nil
}

// homeTimeout is the deadline of a call to the home, which may be an ocean away.
const homeTimeout = 2 * time.Second

// globals are the names of the rules that hold for all regions together.
func globals(rules []policy.Rule) []string {
	var names []string
	for i := range rules {
		if rules[i].Scope == headgate.Global {
			names = append(names, rules[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

// changed logs that the region is cut off from the home, or is not any more.
func (r *regionShares) changed(err error) {
	if err != nil {
		r.began = time.Now()
		r.logger.Error("the home of regions cannot be asked; what is lent to this region ends with its lease, and then it has its own part of each global limit", slog.Any("error", err))
		return
	}
	r.logger.Info("the home of regions answers again", slog.Duration("after", time.Since(r.began).Round(time.Millisecond)))
}

// Close ends the layer, and closes the home.
func (r *regionShares) Close(ctx context.Context) error {
	err := r.Layer.Close(ctx)
	r.home.Close()
	return err
}

// maxShares is how many shares a page shows.
const maxShares = 100

// status says what the region has of limits.
func (r *regionShares) status(name string) *insightapi.Region {
	if r == nil {
		return nil
	}
	s, shares := r.Stats(), r.Shares()
	out := &insightapi.Region{Name: name, Lent: s.Lent, Shares: []insightapi.Share{}, More: max(0, len(shares)-maxShares)}
	if s.Cut != nil {
		out.Cut = s.Cut.Error()
	}
	for _, x := range shares[:len(shares)-out.More] {
		others := []insightapi.Lent{}
		for _, region := range slices.Sorted(maps.Keys(x.Lent)) {
			if n := x.Lent[region]; n > 0 && region != name {
				others = append(others, insightapi.Lent{Region: region, Units: n})
			}
		}
		out.Shares = append(out.Shares, insightapi.Share{
			Rule: x.Rule, Key: insight.Name{Raw: x.Key}, Limit: x.Limit.String(), Units: x.Limit.Capacity(), Own: x.Own, Lent: x.Lent[name],
			SinceMS: x.Since.Milliseconds(), Demand: int64(x.Demand*60 + 0.5), Others: others,
		})
	}
	return out
}

// collect adds the metrics of the region's shares.
func (r *regionShares) collect(m scrape) {
	if r == nil {
		return
	}
	s := r.Stats()
	m.gauge("headgate_region_cut_off", "1 while this server asks the home of regions for its region, in vain, else 0.", yes(s.Cut != nil))
	m.gauge("headgate_region_keys", "Keys of global rules that were asked for lately.", float64(s.Keys))
	m.gauge("headgate_region_lent_keys", "Keys of which this region has more than its own part.", float64(s.Lent))
	m.counter("headgate_region_home_calls_total", "Calls to the home of regions by this server.", s.Home)
	m.counter("headgate_region_home_failures_total", "Attempts of this server to ask the home of regions that failed.", s.Failed)
	m.counter("headgate_region_floor_total", "Checks that were decided by the region's own part of a limit after its lease had ended.", s.Floor)
	m.counter("headgate_region_late_total", "Decisions that were not used because they came after the lease had ended.", s.Late)
	m.counter("headgate_region_untracked_total", "Checks of keys that have the region's own part only, because this server watches as many keys as it can.", s.Untracked)
}
