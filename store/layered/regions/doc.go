// Package regions has a layer around a [headgate.Store] that has several regions keep to one limit
// together, each with a store of its own. No request waits for another region.
//
// # Basics
//
// Make a [Layer] in every process of a region, around the region's store. It decides checks whose
// Scope is [headgate.Global] by the region's share of their limits, and leaves all others alone.
//
//	shares, err := regions.New(store, regions.Options{
//		Region: "eu", Regions: []string{"eu", "us", "ap"},
//		Store: store, Home: home, Floor: regions.DefaultFloor,
//	})
//	if err != nil {
//		return err
//	}
//	defer shares.Close(ctx)
//	limiter := headgate.New(shares.Store(), rules...)
//
// A share is a number of whole units of a limit's capacity: of a window's count, or of a bucket's
// burst, with the same part of its rate. The region's store counts the same key by a limit of so many
// units. Each region always has the units of its Floor. What else it needs is lent to it by the home,
// for a Lease: see [share.Pool.Lend]. Denials that may end as soon as more is lent have the lease as
// the longest RetryAfter.
//
// # What it promises
//
// All regions together never admit more than the limit:
//
//   - A token bucket of rate r and burst B: at most B + r·T in any time T.
//   - A sliding window, or a fixed window at the region's clock: at most its count.
//   - A sliding counter: its estimate over all regions is at most its count.
//
// It holds while lines are slow, lose calls or are cut, and processes end, because a counter never
// holds more than what the home has noted for its region, and these notes are never more than the
// limit in all. A counter is kept when its share changes, so that nothing is lost or had twice. A
// smaller share frees units for others when the lease of the larger one is over, and what the counter
// holds then is known.
//
//   - No clock is compared with another. Whoever wants units of a region that is silent waits on its
//     own clock until they must be free. Clocks may differ in speed by one part in 64.
//   - A home that has lost its data lends nothing until all regions have come, and a lease and the
//     longest time that a unit stays in use have passed, unless all say that nothing was lent to them.
//   - A home that has forgotten more, because it was restored from a backup, is noticed by each region
//     that has renewed since, and lends as one that has lost its data.
//   - A home that fails over may forget what it acknowledged in the last twentieth of a lease: what it
//     lends is used, and renewed, only when it has been read again in the next beat.
//   - While a limit changes, the larger one holds, until all regions have the new one and a lease and
//     the longest time that a unit stays in use have passed. One of fewer units than there are
//     regions is an exception: while it is raised to more, what was lent of it comes on top.
//   - A decision that comes back after the lease has ended is an error, not an admission.
//
// # Caveats
//
// A region's store that loses its counters frees what they held, as it does without regions. If its
// clock is set forward, windows end early there, and buckets refill. The clocks of the regions' stores
// must agree within half a lease where fixed windows are used.
//
// Two regions must not have one name. All must have the same Regions, Lease and Floor: others are
// other documents at the home, and until all regions have come there, each has its floor only: the
// least of those that were shared, as long as units by them may be in use. A new region begins last.
//
// At most 4,000 keys at a time can have more than their floor in a region, and fewer with many
// regions. A key whose requests fit into half of the floor costs no call and no room anywhere.
//
// Limits that have an Undivided reason, see [headgate.Limit.Undivided], must not be global.
//
// # Reasons
//
// One process of a region asks the home, ten times a lease at most, for all keys of a document at
// once: so calls do not depend on how many requests come. The region's document at its own store says
// which process, and what is lent. Both documents are written only by who has read them, with
// [store.Documents], which all stores have.
//
// A bucket's counter drains at the fastest rate that has asked, and notes for slower ones what they
// would have in use. So the leader tells it of each new rate before that is published, and charges
// what has drained too fast when a rate rises again.
package regions
