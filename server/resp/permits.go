package resp

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store"
)

func permitCommands() []*command {
	who := []param{{name: "rule"}, {name: "key"}, {name: "holder"}}
	ttl := param{name: "milliseconds", token: "TTL", optional: true}
	with := func(more ...param) []param { return append(who[:len(who):len(who)], more...) }
	return []*command{
		{
			name: "HG.ACQUIRE", least: 4, most: 10, run: (*call).acquire, key: 2,
			params:  with(param{name: "cost", token: "COST", optional: true}, ttl, param{name: "milliseconds", token: "KEEP", optional: true}),
			summary: "Takes a permit of a rule that bounds what is in progress, if one is free.",
		},
		{
			name: "HG.RENEW", least: 5, most: 7, run: (*call).renew, key: 2, params: with(param{name: "epoch"}, ttl),
			summary: "Has a permit last for its time from now.",
		},
		{
			name: "HG.RELEASE", least: 4, most: 5, run: (*call).giveBack, key: 2, params: with(param{name: "epoch", optional: true}),
			summary: "Gives a permit back; without the epoch, whatever permit or place in line the holder has.",
		},
	}
}

// permitCall parses the arguments that all commands about permits have.
func (k *call) permitCall() *decide.PermitCall {
	return &decide.PermitCall{Rule: k.args[1], Key: k.args[2], Holder: k.args[3], Given: decide.GivenRule | decide.GivenKey}
}

// words parses the keywords behind the fixed arguments, each with milliseconds or, for COST, units.
// If something is wrong, it answers with an error and reports false. It removes the keywords that
// it has read from known.
func (k *call) words(args []string, c *decide.PermitCall, known map[string]*int64) bool {
	for ; len(args) > 0; args = args[2:] {
		var to *int64
		word := ""
		for name, at := range known {
			if equal(args[0], name) {
				word, to = name, at
			}
		}
		var problem string
		switch {
		case to == nil:
			problem = quote(args[0]) + " is not known here, or is given twice; write " + k.command.usage()
		case len(args) == 1:
			problem = "there is nothing behind " + word
		case word == "COST":
			problem = whole(args[1], "the cost", 1, headgate.MaxPermits, to)
			c.Given |= decide.GivenCost
		default:
			most := store.MaxTTL
			if word == "KEEP" {
				most = decide.MaxPermitKeep
			}
			problem = whole(args[1], "the time behind "+word, 0, most.Milliseconds(), to)
		}
		if problem != "" {
			k.fail("ERR", k.command.name+": "+problem)
			return false
		}
		delete(known, word)
	}
	return true
}

// epoch parses an epoch, or answers with an error and reports false.
func (k *call) epoch(text string, c *decide.PermitCall) bool {
	if problem := whole(text, "the epoch", 0, store.MaxEpoch, &c.Epoch); problem != "" {
		k.fail("ERR", k.command.name+": "+problem)
		return false
	}
	return true
}

// refusePermit answers a call about permits that was not decided.
func (k *call) refusePermit(c *decide.PermitCall, o *decide.Outcome) {
	k.request.Faults = c.Faults
	k.refuse(o)
}

func (k *call) acquire() {
	c := k.permitCall()
	if !k.words(k.args[4:], c, map[string]*int64{"COST": &c.Cost, "TTL": &c.TTLMS, "KEEP": &c.KeepMS}) {
		return
	}
	s := k.conn.server
	a, o := s.options.Permits.Acquire(k.ctx, c)
	if o.Kind != decide.Decided {
		k.refusePermit(c, o)
		return
	}
	p, members := k.proto, 8
	if a.Shadow {
		members++
	}
	if a.Open {
		members++
	}
	b := p.appendBool(append(p.appendMap(k.out, members), nameAllowed...), a.Allowed)
	if b = appendBulk(b, "permit"); a.Granted() {
		b = k.appendPermit(b, &a.Lease)
	} else {
		b = p.appendNull(b)
	}
	b = appendInt(append(b, nameRetryAfter...), decide.Millis(a.RetryAfter))
	b = appendInt(appendBulk(b, "in_use"), a.InUse)
	b = appendInt(appendBulk(b, "limit"), a.Limit)
	b = appendInt(appendBulk(b, "line"), int64(a.Line))
	b = p.appendBool(appendBulk(b, "waiting"), a.Waiting)
	b = appendInt(appendBulk(b, "ahead"), int64(a.Ahead))
	if a.Shadow {
		b = p.appendBool(append(b, nameShadow...), true)
	}
	if a.Open {
		b = appendBulk(append(b, nameSource...), headgate.SourceOpen.String())
	}
	k.out = b
}

// appendPermit writes a permit. Its times are rounded down, so that a renewal within them is not
// too late.
func (k *call) appendPermit(b []byte, l *store.Lease) []byte {
	b = appendInt(appendBulk(k.proto.appendMap(b, 4), "epoch"), l.Epoch)
	b = appendArray(appendBulk(b, "slots"), len(l.Slots))
	for _, slot := range l.Slots {
		b = appendInt(b, int64(slot))
	}
	b = appendInt(appendBulk(b, "expires_in_ms"), l.Remaining.Milliseconds())
	return appendInt(appendBulk(b, "ttl_ms"), l.TTL.Milliseconds())
}

func (k *call) renew() {
	c := k.permitCall()
	if !k.epoch(k.args[4], c) || !k.words(k.args[5:], c, map[string]*int64{"TTL": &c.TTLMS}) {
		return
	}
	s := k.conn.server
	lease, o := s.options.Permits.Renew(k.ctx, c)
	if o.Kind != decide.Decided {
		k.refusePermit(c, o)
		return
	}
	k.out = k.appendPermit(k.out, &lease)
}

func (k *call) giveBack() {
	c := k.permitCall()
	if len(k.args) > 4 && !k.epoch(k.args[4], c) {
		return
	}
	s := k.conn.server
	released, o := s.options.Permits.Release(k.ctx, c)
	if o.Kind != decide.Decided {
		k.refusePermit(c, o)
		return
	}
	k.out = k.proto.appendBool(k.out, released)
}
