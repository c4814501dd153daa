package client

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api/content"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/store"
)

// Store is a server that keeps counters for rules of the caller's own; see
// [Client.Store]. It is safe for concurrent use.
//
// Errors are as [headgate.Ledger] has them. A server that does not offer its store,
// or wants another token, is an unavailable one, and the error says so.
type Store struct {
	client *Client
	api    headgatev1.StoreClient
	takes  *mux[*headgatev1.TakeRequest, *headgatev1.TakeResponse]

	mu    sync.RWMutex // guards rules
	rules map[*headgate.Rule]*headgatev1.Rule
}

var _ headgate.Ledger = (*Store)(nil)

func newStore(c *Client, from int) *Store {
	s := &Store{client: c, api: headgatev1.NewStoreClient(c.conn)}
	s.takes = newMux(c, from, takeStreams{s.api})
	return s
}

// Ping asks whether the server answers and offers its store, by a question that
// charges nothing.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.Take(ctx, headgate.OpPeek, []headgate.Check{{Rule: pinged()}}, nil)
	return err
}

// pinged is a rule whose name is not one that a program is likely to have, and
// whose counter would not change if it were.
func pinged() *headgate.Rule { return headgate.MustRule("headgate.ping", headgate.PerSecond(1)) }

// Take implements [headgate.Store].
func (s *Store) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := store.Validate(op, checks); err != nil {
		return dst, err
	}
	messages, err := s.messages(checks)
	if err != nil {
		return dst, err
	}
	r := &headgatev1.TakeRequest{Op: headgatev1.Op(op), Checks: messages}
	answer, err := s.takes.do(ctx, r, func(ctx context.Context, r *headgatev1.TakeRequest) (*headgatev1.TakeResponse, error) {
		return s.api.Take(ctx, r)
	})
	if err != nil {
		return dst, failed(op.String(), err)
	}
	if op == headgate.OpReset {
		return dst, nil
	}
	return decisions(checks, answer.GetDecisions(), dst)
}

// TakeOnce implements [headgate.Ledger].
func (s *Store) TakeOnce(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := store.ValidateOnce(&terms, checks); err != nil {
		return dst, err
	}
	messages, err := s.messages(checks)
	if err != nil {
		return dst, err
	}
	answer, err := ask(ctx, s.client, "take once", &headgatev1.TakeOnceRequest{Terms: termsMessage(&terms), Checks: messages}, s.api.TakeOnce)
	if err != nil {
		return dst, err
	}
	return decisions(checks, answer.GetDecisions(), dst)
}

// Reserve implements [headgate.Ledger].
func (s *Store) Reserve(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	var none headgate.Reservation
	if err := terms.Validate(); err != nil {
		return none, dst, err
	}
	if err := store.Validate(headgate.OpTake, checks); err != nil {
		return none, dst, err
	}
	messages, err := s.messages(checks)
	if err != nil {
		return none, dst, err
	}
	answer, err := ask(ctx, s.client, "reserve", &headgatev1.TakeReserveRequest{Terms: termsMessage(&terms), Checks: messages}, s.api.TakeReserve)
	if err != nil {
		return none, dst, err
	}
	made, err := s.reservation("reserve", answer.GetReservation(), checks)
	if err != nil {
		return none, dst, err
	}
	dst, err = decisions(checks, answer.GetDecisions(), dst)
	return made, dst, err
}

// Recall implements [headgate.Ledger].
func (s *Store) Recall(ctx context.Context, id string) (headgate.Reservation, error) {
	if id == "" {
		return headgate.Reservation{}, fmt.Errorf("%w: it has no id", headgate.ErrNoReservation)
	}
	answer, err := ask(ctx, s.client, "recall", &headgatev1.RecallRequest{Id: []byte(id)}, s.api.Recall)
	if err != nil {
		return headgate.Reservation{}, err
	}
	return s.reservation("recall", answer, nil)
}

// Settle implements [headgate.Ledger].
func (s *Store) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := store.ValidateSettle(&r, units); err != nil {
		return dst, err
	}
	m, err := content.Reservation(&r)
	if err != nil {
		return dst, err
	}
	answer, err := ask(ctx, s.client, "settle", &headgatev1.TakeSettleRequest{Reservation: m, Units: units}, s.api.TakeSettle)
	if err != nil {
		return dst, err
	}
	return decisions(r.Checks, answer.GetDecisions(), dst)
}

func termsMessage(t *headgate.Terms) *headgatev1.Terms {
	return &headgatev1.Terms{Id: []byte(t.ID), LifetimeMs: t.For.Milliseconds()}
}

// messages are the checks as they are sent.
func (s *Store) messages(checks []headgate.Check) ([]*headgatev1.StoreCheck, error) {
	messages := make([]*headgatev1.StoreCheck, len(checks))
	for i := range checks {
		rule, err := s.rule(checks[i].Rule)
		if err != nil {
			return nil, err
		}
		messages[i] = content.CheckMessage(&checks[i], rule)
	}
	return messages, nil
}

// maxRules bounds the messages of rules that are kept. Beyond it all are forgotten,
// and those in use are made again.
const maxRules = 4096

// rule is the rule's message, which nobody changes.
func (s *Store) rule(r *headgate.Rule) (*headgatev1.Rule, error) {
	s.mu.RLock()
	m := s.rules[r]
	s.mu.RUnlock()
	if m != nil {
		return m, nil
	}
	m, err := content.Message(r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rules == nil || len(s.rules) >= maxRules {
		s.rules = make(map[*headgate.Rule]*headgatev1.Rule)
	}
	s.rules[r] = m
	return m, nil
}

// decisions appends what the server says of the limits of checks: of all of them or,
// if it remembers a denial, of some checks, each with all of its limits.
func decisions(checks []headgate.Check, from []*headgatev1.StoreDecision, dst []headgate.Decision) ([]headgate.Decision, error) {
	before, all := len(dst), 0
	for i := range checks {
		all += len(checks[i].Rule.Limits())
	}
	whole := len(from) == all
	for len(from) > 0 {
		place := int(from[0].GetCheck())
		if place < 0 || place >= len(checks) || len(from) < len(checks[place].Rule.Limits()) {
			break
		}
		c := &checks[place]
		limits := c.Rule.Limits()
		for j := range limits {
			m := from[j]
			if int(m.GetCheck()) != place {
				return dst[:before], errDecisions(len(dst)-before, all)
			}
			dst = append(dst, headgate.Decision{
				Rule: c.Rule, Limit: &limits[j], Check: place, Allowed: m.GetAllowed(), Shadow: c.Shadow,
				Source: headgate.Source(m.GetSource()), Remaining: m.GetRemaining(), At: headgate.Instant(m.GetAt()),
				RetryAfter: content.Duration(m.GetRetryAfterUs()), ResetAfter: content.Duration(m.GetResetAfterUs()), Delay: content.Duration(m.GetDelayUs()),
			})
		}
		from = from[len(limits):]
	}
	// Anything but a denial must be about everything.
	if got := len(dst) - before; len(from) > 0 || !whole && headgate.NewVerdict(dst[before:]).Allowed {
		return dst[:before], errDecisions(got, all)
	}
	return dst, nil
}

func errDecisions(got, want int) error {
	return failed("take", fmt.Errorf("the server's answer makes sense for %d of %d limits", got, want))
}

// reservation is the one that the message means. Rules that are among those of the
// checks are these very rules, and not others alike.
func (s *Store) reservation(doing string, m *headgatev1.StoreReservation, checks []headgate.Check) (headgate.Reservation, error) {
	r := headgate.Reservation{ID: string(m.GetId()), Expires: headgate.Instant(m.GetExpires())}
	for _, from := range m.GetChecks() {
		c := content.Check(from)
		c.OnError = headgate.OnError(from.GetOnError())
		for i := range checks {
			if checks[i].Rule.Name() == from.GetRule().GetName() && checks[i].Key == c.Key {
				c.Rule = checks[i].Rule
			}
		}
		if c.Rule == nil {
			rule, err := content.Rule(from.GetRule())
			if err != nil {
				return headgate.Reservation{}, failed(doing, fmt.Errorf("the server's reservation: %w", err))
			}
			c.Rule = rule
		}
		r.Checks = append(r.Checks, c)
	}
	return r, nil
}

// takeStreams are streams of takes.
type takeStreams struct{ api headgatev1.StoreClient }

func (t takeStreams) open(ctx context.Context) (stream[*headgatev1.TakeRequest, *headgatev1.TakeResponse], error) {
	s, err := t.api.TakeStream(ctx)
	return takeStream{s}, err
}

// ruleWeight is about what a rule takes.
const ruleWeight = 128

func (takeStreams) weight(r *headgatev1.TakeRequest) int {
	n := 0
	for _, c := range r.GetChecks() {
		n += ruleWeight + len(c.GetKey())
	}
	return n
}

type takeStream struct {
	grpc.BidiStreamingClient[headgatev1.TakeStreamRequest, headgatev1.TakeStreamResponse]
}

func (s takeStream) send(items []item[*headgatev1.TakeRequest]) error {
	m := &headgatev1.TakeStreamRequest{Takes: make([]*headgatev1.NumberedTake, len(items))}
	all := make([]headgatev1.NumberedTake, len(items))
	for i := range items {
		all[i].Number, all[i].Request = items[i].number, items[i].question
		m.Takes[i] = &all[i]
	}
	return s.Send(m)
}

func (s takeStream) receive(each func(uint64, *headgatev1.TakeResponse, error)) error {
	m, err := s.Recv()
	if err != nil {
		return err
	}
	for _, r := range m.GetResults() {
		if r.GetResponse() == nil {
			each(r.GetNumber(), nil, resultError(r.GetError()))
			continue
		}
		each(r.GetNumber(), r.GetResponse(), nil)
	}
	return nil
}
