package redis

import (
	"context"
	"crypto/sha256"
	"encoding/binary"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Settle implements [headgate.Ledger].
func (s *Store) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := store.ValidateSettle(&r, units); err != nil {
		return dst, err
	}
	ctx, cancel, err := s.deadlines.Limit(ctx)
	if err != nil {
		return dst, unavailable("settle", err)
	}
	defer cancel()
	if s.clustered != nil {
		return s.settleCluster(ctx, &r, units, dst, settleNow)
	}
	return s.settle(ctx, &r, units, dst, settleNow)
}

// The modes of refund.lua.
const (
	refundMode    = "0"  // there is no note
	chargeMode    = "00" // sent as refundMode; only the operation in errors and statistics differs
	settleNow     = "1"
	settleExpired = "2"
	settleForget  = "3" // the request has failed, and its note is dropped
)

// settle runs refund.lua for a reservation or, in refundMode and chargeMode, for checks without a
// note.
func (s *Store) settle(ctx context.Context, r *headgate.Reservation, units []int64, dst []headgate.Decision, mode string) ([]headgate.Decision, error) {
	for range windowTries {
		reply, err := s.callSettle(ctx, r, units, mode)
		if err != nil {
			return dst, err
		}
		s.heard(reply.now)
		switch reply.status {
		case statusWindow:
			continue
		case statusConflict:
			return dst, &headgate.ConflictError{Units: units}
		case statusNone:
			return dst, headgate.ErrNoReservation
		}
		return reply.settled(r, units, dst)
	}
	return dst, jumps(headgate.OpRefund)
}

func (s *Store) callSettle(ctx context.Context, r *headgate.Reservation, units []int64, mode string) (reply, error) {
	near := s.likely()
	b := make([]byte, 0, 64+160*len(r.Checks))
	if s.clock != nil {
		b = appendInt(b, int64(near))
	}
	ends := append(make([]int, 0, 1+5*len(r.Checks)), len(b))
	used := r.Used
	h := sha256.New()
	for i := range r.Checks {
		c := &r.Checks[i]
		b = appendKey(b, s.prefix, c)
		ends = append(ends, len(b))
		b = appendSpec(b, c.Rule, near)
		ends = append(ends, len(b))
		b = appendInt(b, c.Units()-units[i])
		ends = append(ends, len(b))
		b = appendInt(b, int64(c.At))
		ends = append(ends, len(b))
		limits := c.Rule.Limits()
		for j := range limits {
			if limits[j].Algorithm != headgate.SlidingWindow && len(used) > 0 {
				b = binary.BigEndian.AppendUint32(b, uint32(used[j]))
			}
		}
		ends = append(ends, len(b))
		if len(used) > 0 {
			used = used[len(limits):]
		}
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(units[i])))
	}
	keys := make([]string, 0, len(r.Checks)+1)
	keys, args := cutArgs(string(b), ends, len(r.Checks), []string{mode}, keys)
	switch mode {
	case chargeMode:
		args[0] = refundMode
		return s.exec(ctx, headgate.OpCharge, s.refund, keys, args, false)
	case refundMode:
		return s.exec(ctx, headgate.OpRefund, s.refund, keys, args, false)
	}
	// On a cluster, the nodes' clocks differ, and so does the expiry of the notes on them.
	expires := ""
	if s.clustered == nil {
		expires = string(appendUint56(nil, int64(r.Expires)))
	}
	return s.exec(ctx, headgate.OpRefund, s.refund, append(keys, s.noteKey(r.ID, keys[0])),
		append(args, expires, string(h.Sum(nil)[:16])), false)
}

// settled appends the decisions that follow from the answer of refund.lua to a settlement.
func (r reply) settled(res *headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	want := 0
	for i := range res.Checks {
		want += limitBytes(res.Checks[i].Rule.Limits(), r.text[min(want, len(r.text)):])
	}
	if len(r.text) != want {
		return dst, r.misread(want)
	}
	text, used := r.text, res.Used
	for i := range res.Checks {
		c := &res.Checks[i]
		limits := c.Rule.Limits()
		first := len(dst)
		for j := range limits {
			dst = append(dst, headgate.Decision{Rule: c.Rule, Check: i, Shadow: c.Shadow})
			l := &limits[j]
			if l.Algorithm == headgate.SlidingWindow {
				continue
			}
			before, rest := cutCounter(l, text, r.now)
			after := before
			text = rest
			if more := units[i] - c.Units(); more != 0 {
				known := int64(0)
				if len(used) > 0 {
					known = used[j]
				}
				after = before.Settle(l, r.now, more, c.At, known)
			}
			after.Describe(&dst[first+j], l, before, r.now, 0, true)
		}
		for j := range limits {
			if l := &limits[j]; l.Algorithm == headgate.SlidingWindow {
				readFacts(text, r.now).Describe(&dst[first+j], l, r.now, 0, false)
				text = text[factsBytes:]
			}
			d := &dst[first+j]
			d.Allowed, d.RetryAfter, d.Delay = true, 0, 0
		}
		if len(used) > 0 {
			used = used[len(limits):]
		}
	}
	return dst, nil
}
