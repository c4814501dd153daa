package envoyrlqs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/share"
)

// tries is how often the division of a limit is changed anew because somebody else has changed it
// meanwhile.
const tries = 20

// divided is a limit that is divided among Envoys, for a bucket whose requests cost that many units.
type divided struct {
	document string
	limit    share.Limit
	cost     int64
	turn     int64 // of the grant that the Envoy was told last
}

// granted is a grant in requests, and how long it counts from now on.
type granted struct {
	share.Grant
	left time.Duration
}

// shares has the divisions of limits, in documents of the store.
type shares struct{ documents store.Documents }

// ask asks for the share of one holder, in requests, and reports whether there may be more for it
// soon.
func (s *shares) ask(ctx context.Context, d *divided, a share.Ask) (g granted, more bool, err error) {
	if a.Cost = d.cost; a.Demand > 0 {
		a.Demand = min(a.Demand, share.MaxRate/d.cost) * d.cost
	}
	for try := range tries {
		if try > 0 {
			select {
			case <-time.After(rand.N(time.Duration(try) * time.Millisecond)):
			case <-ctx.Done():
				return granted{}, false, ctx.Err()
			}
		}
		document, err := s.documents.ReadDocument(ctx, d.document)
		if err != nil {
			return granted{}, false, err
		}
		p, err := share.Read(document.Value)
		if err != nil {
			return granted{}, false, err
		}
		now := int64(document.Now)
		grant := p.Ask(d.limit, a, now)
		written, err := s.documents.WriteDocument(ctx, document, p.Bytes(), p.Keep(d.limit))
		switch {
		case err != nil:
			return granted{}, false, err
		case written:
			grant.Rate, grant.Burst = grant.Rate/d.cost, grant.Burst/d.cost
			return granted{grant, time.Duration(grant.Until-now) * time.Microsecond}, p.Wants(d.limit, a.ID), nil
		}
	}
	return granted{}, false, fmt.Errorf("%w: the shares of a limit were changed by others %d times meanwhile", headgate.ErrUnavailable, tries)
}

func text(n uint64) string { return strconv.FormatUint(n, 36) }
