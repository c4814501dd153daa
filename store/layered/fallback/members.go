package fallback

import (
	"context"
	"time"

	"github.com/headgate/headgate/store/layered/internal/layer"
)

// Members is what a store may offer so that the nodes that share it can count each other.
type Members interface {
	// Members records that the node is there for ttl from now, and forgets nodes whose time is
	// over. A ttl of zero records that the node is gone. Members returns how many nodes are
	// there, and for how long the store has had its data: since the first such call, or since
	// it lost the data.
	Members(ctx context.Context, node string, ttl time.Duration) (nodes int64, age time.Duration, err error)
}

const (
	// missedBeats is how many beats a node must miss before the others take it for gone.
	missedBeats = 3
)

// beat counts the nodes, and finds out whether the primary has lost its data.
func (k *keeper) beat(ctx context.Context) {
	f := k.fallback
	if f.options.Members == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, layer.CallWithin)
	defer cancel()
	nodes, age, err := f.options.Members.Members(ctx, f.options.Node, missedBeats*f.options.Beat)
	if err != nil {
		k.fewerSince = time.Time{}
		if stateOf(f.breaker.word.Load()) == Closed && f.breaker.row.Load() == 0 {
			// Otherwise the store answers nobody, and the breaker says so.
			k.nodesError.Store(&err)
			f.announce()
		}
		return
	}
	k.nodesError.Store(nil)
	k.counted(max(nodes, f.options.Nodes))
	k.learnUntil = time.Now().Add(f.options.Learn - age)
	k.learn()
	f.announce()
}

// counted takes over the number of nodes. More nodes are believed at once. Fewer are believed only
// after that has been the number for as long as every node needs to be counted, because a store
// that was away knows of none at first.
func (k *keeper) counted(nodes int64) {
	was := k.fallback.shares.Load().nodes
	switch now := time.Now(); {
	case nodes >= was:
		k.fewerSince = time.Time{}
	case k.fewerSince.IsZero():
		k.fewerSince = now
	}
	if nodes > was || nodes < was && time.Since(k.fewerSince) >= missedBeats*k.fallback.options.Beat {
		k.fallback.shares.Store(newShares(nodes))
		k.fewerSince = time.Time{}
	}
}

// learn begins or ends the time in which the primary's admissions are not enough.
func (k *keeper) learn() { k.fallback.learning.Store(time.Now().Before(k.learnUntil)) }
