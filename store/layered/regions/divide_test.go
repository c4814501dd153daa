package regions

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// While a limit changes, regions may use their own units of the larger one beside what was lent by the
// smaller one.
func TestDivision(t *testing.T) {
	const most = 400
	for regions := 2; regions <= MaxRegions; regions++ {
		for percent := 0; percent*regions <= 100; percent++ {
			before := make([]int64, regions)
			lendable := int64(0)
			for capacity := int64(1); capacity <= most; capacity++ {
				l := headgate.Sliding(capacity, time.Second)
				o := Options{Floor: percent, Regions: make([]string, regions)}
				sum := o.lendable(&l)
				if sum < lendable && capacity > int64(regions) {
					t.Fatalf("%d regions with %d %%: of %d, %d can be lent, of one less %d", regions, percent, capacity, sum, lendable)
				}
				lendable = sum
				for place := range regions {
					own := division{Percent: percent, Regions: regions, Place: place}.of(&l)
					if own < before[place] || own == 0 && percent > 0 && capacity >= int64(regions) {
						t.Fatalf("%d regions with %d %%: region %d has %d of %d, and of one less %d", regions, percent, place, own, capacity, before[place])
					}
					before[place] = own
					sum += own
				}
				if sum != capacity {
					t.Fatalf("%d regions with %d %% have %d of %d in all", regions, percent, sum, capacity)
				}
			}
		}
	}
}
