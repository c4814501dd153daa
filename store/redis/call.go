package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis/internal/guard"
	"github.com/headgate/headgate/store/redis/internal/refusal"
)

// call runs take.lua or, for OpRefund, refund.lua. If n is not nil, take.lua stores a note about
// the request. All keys and arguments are parts of one string.
func (s *Store) call(ctx context.Context, op headgate.Op, checks []headgate.Check, n *note) (reply, error) {
	script, mode := s.take, "0"
	switch op {
	case headgate.OpTake:
		mode = "1"
	case headgate.OpRefund:
		script = s.refund
	}
	if n != nil {
		mode = "2"
	}
	near := s.likely()
	b := make([]byte, 0, 64+160*len(checks))
	keys := make([]string, 0, len(checks)+1)
	args := make([]string, 0, 7+4*len(checks))
	ends := make([]int, 0, 1+5*len(checks))
	if s.clock != nil {
		b = appendInt(b, int64(near))
	}
	ends = append(ends, len(b))
	for i := range checks {
		c := &checks[i]
		b = appendKey(b, s.prefix, c)
		ends = append(ends, len(b))
		b = appendSpec(b, c.Rule, near)
		ends = append(ends, len(b))
		cost := c.Units()
		if c.Shadow && op != headgate.OpRefund {
			cost = -cost
		}
		b = appendInt(b, cost)
		ends = append(ends, len(b))
		if op == headgate.OpRefund {
			b = appendInt(b, int64(c.At))
			ends = append(ends, len(b), len(b)) // empty: the units in use then are not known
		}
	}
	keys, args = cutArgs(string(b), ends, len(checks), append(args, mode), keys)
	if n != nil {
		keys, args = append(keys, n.key), n.append(args)
	}
	return s.exec(ctx, op, script, keys, args, n == nil)
}

// cutArgs cuts one string into the keys and arguments of take.lua and refund.lua. ends are the ends
// of the parts. The first part is the time. Then, for each check, come its key and the same number
// of arguments.
func cutArgs(all string, ends []int, checks int, args, keys []string) (k, a []string) {
	args = append(args, all[:ends[0]])
	per := (len(ends) - 1) / checks
	for i, end := range ends[1:] {
		if part := all[ends[i]:end]; i%per == 0 {
			keys = append(keys, part)
		} else {
			args = append(args, part)
		}
	}
	return keys, args
}

// guard returns the guard of the server that has a key. On a cluster, its map of the slots may be a
// few seconds old.
func (s *Store) guard(key string) *guard.Server {
	if s.clustered == nil {
		return s.guards.Any()
	}
	return s.placesNow().guard(slotOf(key), s.guards.Any())
}

// exec runs a script for one request. alone says that the call may use the lone connection. It must
// be false if a later call has to find the effect of this one, even if this one gets no answer:
// only calls on the same connection reach the server in their order.
func (s *Store) exec(ctx context.Context, op headgate.Op, script *rueidis.Lua, keys, args []string, alone bool) (reply, error) {
	to, came := s.guard(keys[0]), time.Now()
	if script == s.refund {
		// Refunds, settlements and reports do not wait behind decisions.
		if err := to.Begin(); err != nil {
			return reply{}, unavailable(op.String(), err)
		}
		text, err := s.run(ctx, to, came, script, keys, args, false)
		to.End(came, err)
		return read(op, text, err)
	}
	began, waited, err := to.Enter(ctx, came)
	switch {
	case err != nil && waited:
		return reply{}, &overtaken{op, err}
	case err != nil:
		return reply{}, unavailable(op.String(), err)
	}
	text, err := s.run(ctx, to, began, script, keys, args, alone)
	to.Leave(began, err)
	return read(op, text, err)
}

// overtaken is the error of a decision that was not sent because more decisions came than were
// answered in time. There can be many such errors, so the text is formatted only when it is asked
// for.
type overtaken struct {
	op    headgate.Op
	ended error // the error of the context, or guard.ErrClosed
}

// Error returns the text, which it formats at each call.
func (e *overtaken) Error() string {
	why := e.ended
	if !errors.Is(why, guard.ErrClosed) {
		why = fmt.Errorf("more ask than are answered in time; it was not sent: %w", why)
	}
	return unavailable(e.op.String(), why).Error()
}

// Unwrap returns [headgate.ErrUnavailable] and the error that ended the wait.
func (e *overtaken) Unwrap() []error { return []error{headgate.ErrUnavailable, e.ended} }

// read parses a script's answer, or wraps the error of the call.
func read(op headgate.Op, text string, err error) (reply, error) {
	if err != nil {
		return reply{}, unavailable(op.String(), err)
	}
	return parseReply(text)
}

// run calls a script, at the given time. The guard of the server must have admitted the call.
func (s *Store) run(ctx context.Context, to *guard.Server, began time.Time, script *rueidis.Lua, keys, args []string, alone bool) (text string, err error) {
	if s.observing.tell != nil {
		op := headgate.OpTake
		if script == s.refund {
			op = headgate.OpRefund
		}
		defer func() { s.observe(slotOf(keys[0]), op.String(), began, err) }()
	}
	if alone && to.Calls() == 1 {
		var sent bool
		if text, sent, err = s.lone.call(ctx, script, keys, args); sent {
			if err != nil {
				to.Heard(began, err)
			}
			return text, err
		}
	}
	if to.Unsure(began) {
		text, err = guard.Bounded(ctx, func() (string, error) { return script.Exec(ctx, s.client, keys, args).ToString() })
	} else {
		text, err = script.Exec(ctx, s.client, keys, args).ToString()
	}
	to.Heard(began, err)
	return text, err
}

func (s *Store) reset(ctx context.Context, checks []headgate.Check) error {
	keys := make([]string, len(checks))
	for i := range checks {
		keys[i] = string(appendKey(nil, s.prefix, &checks[i]))
	}
	return s.do(ctx, "reset", s.client.B().Del().Key(keys...).Build())
}

// do sends a command, and returns only its error.
func (s *Store) do(ctx context.Context, doing string, command rueidis.Completed) error {
	to, slot := s.guards.Any(), command.Slot()
	if s.clustered != nil {
		to = s.placesNow().guard(slot, to)
	}
	if err := to.Begin(); err != nil {
		return unavailable(doing, err)
	}
	began := time.Now()
	_, err := guard.Bounded(ctx, func() (struct{}, error) { return struct{}{}, s.client.Do(ctx, command).Error() })
	to.End(began, err)
	if s.observing.tell != nil {
		s.observe(slot, doing, began, err)
	}
	if err != nil {
		return unavailable(doing, err)
	}
	return nil
}

// unavailable wraps err with what was being done and with ErrUnavailable, and also with ErrDamaged
// if a script could not read a value.
func unavailable(doing string, err error) error {
	if refusal.Damaged(err) {
		return fmt.Errorf("%w: %w: redis: %s: %w", headgate.ErrUnavailable, headgate.ErrDamaged, doing, err)
	}
	return fmt.Errorf("%w: redis: %s: %w", headgate.ErrUnavailable, doing, err)
}
