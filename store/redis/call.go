package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
)

// call runs take.lua, for a request that is to be remembered if there is a note, or
// refund.lua. All keys and arguments are cut from one string.
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
		b = appendInt(b, near)
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
			ends = append(ends, len(b), len(b)) // and it is not known how many were in use
		}
	}
	keys, args = cutArgs(string(b), ends, len(checks), append(args, mode), keys)
	if n != nil {
		keys, args = append(keys, n.key), n.append(args)
	}
	return s.exec(ctx, op, script, keys, args)
}

// cutArgs cuts the arguments of take.lua and refund.lua from one text: the time up
// to the first end, then for each check its key, and as many arguments for each.
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

// begin admits a call for a key or refuses it. An admitted one must end, and it is to be
// known when it began.
func (s *Store) begin(key string) (began time.Time, err error) {
	began = time.Now()
	if s.clustered != nil {
		if err := s.refuses(key); err != nil {
			return began, err
		}
	}
	return began, s.pending.begin()
}

// end notes how a call for a key ended.
func (s *Store) end(key string, began time.Time, err error) {
	s.pending.end(err)
	s.heard(key, began, err)
}

func (s *Store) exec(ctx context.Context, op headgate.Op, script *rueidis.Lua, keys, args []string) (reply, error) {
	began, err := s.begin(keys[0])
	if err != nil {
		return reply{}, unavailable(op.String(), err)
	}
	if script == s.refund {
		// What gives back, settles or reports is not held up by decisions.
		text, err := s.run(ctx, script, keys, args)
		s.end(keys[0], began, err)
		return read(op, text, err)
	}
	lane := s.lane(keys[0], began)
	if began, err = lane.enter(ctx, began); err != nil {
		s.pending.drop()
		return reply{}, &overtaken{op, err}
	}
	text, err := s.run(ctx, script, keys, args)
	lane.leave(began, err)
	s.end(keys[0], began, err)
	return read(op, text, err)
}

// read reads a script's answer.
func read(op headgate.Op, text string, err error) (reply, error) {
	if err != nil {
		return reply{}, unavailable(op.String(), err)
	}
	return parseReply(text)
}

// run calls a script, whoever counts the call as pending.
func (s *Store) run(ctx context.Context, script *rueidis.Lua, keys, args []string) (text string, err error) {
	if s.observing.tell != nil {
		op := headgate.OpTake
		if script == s.refund {
			op = headgate.OpRefund
		}
		defer func(start time.Time) { s.observe(slotOf(keys[0]), op.String(), start, err) }(time.Now())
	}
	if s.doubt.now(ctx) {
		text, err = bounded(ctx, func() (string, error) { return script.Exec(ctx, s.client, keys, args).ToString() })
	} else {
		text, err = script.Exec(ctx, s.client, keys, args).ToString()
	}
	s.doubt.note(ctx, err)
	return text, err
}

func (s *Store) reset(ctx context.Context, checks []headgate.Check) error {
	keys := make([]string, len(checks))
	for i := range checks {
		keys[i] = string(appendKey(nil, s.prefix, &checks[i]))
	}
	return s.do(ctx, "reset", s.client.B().Del().Key(keys...).Build())
}

// do sends a command of which only the error matters.
func (s *Store) do(ctx context.Context, doing string, command rueidis.Completed) error {
	if err := s.pending.begin(); err != nil {
		return unavailable(doing, err)
	}
	start, slot := time.Time{}, command.Slot()
	if s.observing.tell != nil {
		start = time.Now()
	}
	_, err := bounded(ctx, func() (struct{}, error) { return struct{}{}, s.client.Do(ctx, command).Error() })
	s.pending.end(err)
	if s.observing.tell != nil {
		s.observe(slot, doing, start, err)
	}
	if err != nil {
		return unavailable(doing, err)
	}
	return nil
}

// unavailable wraps what went wrong with what was being done.
func unavailable(doing string, err error) error {
	return fmt.Errorf("%w: redis: %s: %w", headgate.ErrUnavailable, doing, err)
}
