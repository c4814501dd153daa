package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/inprogress"
	"github.com/headgate/headgate/server/app"
	"github.com/headgate/headgate/store"
)

// permit has the commands about what may be in progress over all processes.
type permit struct {
	Run     permitRun     `cmd:"" help:"Hold a permit while a command runs."`
	Holders permitHolders `cmd:"" help:"List who holds permits, and who waits for one."`
	Revoke  permitRevoke  `cmd:"" help:"Forbid that a holder's permit is renewed."`
}

// permitOf has the flags that say which permits are meant.
type permitOf struct {
	Store  string   `help:"The store that processes share: redis://… or postgres://…, as for serve." placeholder:"URL" required:"" env:"HEADGATE_STORE"`
	Config string   `help:"Policy file. Without one, the sample policy." placeholder:"FILE" env:"HEADGATE_CONFIG"`
	Keys   hashKeys `embed:""`
	Rule   string   `help:"Name of a rule that has in_progress with shared: true." required:"" placeholder:"NAME"`
	Key    string   `help:"Key that the rule counts under, as for check." placeholder:"KEY"`
}

const permitHint = "headgate permit --help lists what there is; docs/rules.md describes in_progress"

// permitStore is an open store with its permits, and what bounds work under a rule and a
// key.
type permitStore struct {
	*app.Store
	permits store.Permits
	bound   policy.Bound
	key     string // of the permits
}

// open opens the store. Close it. With a timeout of zero, calls may take as long as is
// usual for the store.
func (p *permitOf) open(ctx context.Context, cost int64, timeout time.Duration) (*permitStore, error) {
	if p.Store == app.DefaultStore {
		return nil, usage("--store memory is the memory of this process alone", "name a store that processes share, such as redis://127.0.0.1:6379/0")
	}
	key, old, err := p.Keys.read()
	if err != nil {
		return nil, err
	}
	set, err := app.LoadPolicy(p.Config, key, old)
	if err != nil {
		return nil, err
	}
	bound, err := set.Bound(p.Rule, p.Key, cost)
	if invalid, ok := errors.AsType[*headgate.InvalidError](err); ok {
		return nil, usage(fmt.Sprintf("rule %q: %s", p.Rule, joinLines(invalid.Problems.Texts())), permitHint)
	}
	if err != nil {
		return nil, err
	}
	if !bound.Rule.InProgress.Shared {
		return nil, usage(fmt.Sprintf("rule %q counts what is in progress in each process by itself", p.Rule), "add shared: true to its in_progress")
	}
	s, err := app.OpenStore(ctx, app.Settings{Store: p.Store, StoreTimeout: min(timeout, time.Minute)})
	if err != nil {
		return nil, err
	}
	permits, err := store.PermitsOf(s.Store)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &permitStore{Store: s, permits: permits, bound: bound, key: inprogress.StoreKey(bound.Rule.Name, bound.Key)}, nil
}

// within opens the store, has do ask it, and closes it, all within the timeout.
func (p *permitOf) within(c *call, timeout time.Duration, do func(context.Context, *permitStore) error) error {
	c.inTime(timeout)
	if err := c.mistaken(permitHint); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.ctx, timeout)
	defer cancel()
	s, err := p.open(ctx, 1, timeout)
	if err != nil {
		return err
	}
	defer s.Close()
	return do(ctx, s)
}

// permitHolders is the command that lists holders.
type permitHolders struct {
	Of      permitOf      `embed:""`
	Timeout time.Duration `help:"How long to wait for the answer." default:"5s"`
	JSON    bool          `help:"Print JSON." name:"json"`
}

// Help is the detailed help.
func (permitHolders) Help() string {
	return "Exit codes: 0 the list is printed, even if nobody is in it; 2 a mistake; 3 the store does not answer.\n\n" +
		"Example:\n" +
		"  headgate permit holders --config headgate.yaml --store redis://127.0.0.1:6379/0 --rule report --key tenant7"
}

// shownPermit is a lease as it is printed.
type shownPermit struct {
	Holder      string `json:"holder"`
	Epoch       int64  `json:"epoch"`
	Slots       []int  `json:"slots"`
	ExpiresInMS int64  `json:"expires_in_ms"`
	Revoked     bool   `json:"revoked,omitempty"`
}

// shownTicket is a place in line as it is printed.
type shownTicket struct {
	Holder      string `json:"holder"`
	Cost        int64  `json:"cost"`
	ExpiresInMS int64  `json:"expires_in_ms"`
}

// shownHolders is who holds permits and who waits.
type shownHolders struct {
	Limit   int64         `json:"limit"`
	InUse   int64         `json:"in_use"`
	Permits []shownPermit `json:"permits"`
	Waiting []shownTicket `json:"waiting"`
}

// holders asks the store who holds the permits.
func (s *permitStore) holders(ctx context.Context) (*shownHolders, error) {
	found, err := s.permits.Holders(ctx, s.key)
	if err != nil {
		return nil, err
	}
	shown := &shownHolders{Limit: s.bound.Limit, InUse: found.InUse(), Permits: []shownPermit{}, Waiting: []shownTicket{}}
	for i := range found.Leases {
		l := &found.Leases[i]
		shown.Permits = append(shown.Permits, shownPermit{l.Holder, l.Epoch, l.Slots, l.Remaining.Milliseconds(), l.Revoked})
	}
	for i := range found.Waiting {
		t := &found.Waiting[i]
		shown.Waiting = append(shown.Waiting, shownTicket{t.Holder, t.Cost, t.Remaining.Milliseconds()})
	}
	return shown, nil
}

// print writes a line that sums up, and one for each holder.
func (h *shownHolders) print(w io.Writer) error {
	fmt.Fprintf(w, "%d of %d in use, %d waiting\n", h.InUse, h.Limit, len(h.Waiting))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := range h.Permits {
		p := &h.Permits[i]
		state := "holds"
		if p.Revoked {
			state = "revoked, holds"
		}
		left := (time.Duration(p.ExpiresInMS) * time.Millisecond).Round(100 * time.Millisecond)
		fmt.Fprintf(t, "%q\t%s %d\tfor %v more unless renewed\n", p.Holder, state, len(p.Slots), left)
	}
	for i := range h.Waiting {
		fmt.Fprintf(t, "%q\twaits for %d\n", h.Waiting[i].Holder, h.Waiting[i].Cost)
	}
	return t.Flush()
}

// Run lists them.
func (p *permitHolders) Run(c *call) error {
	return p.Of.within(c, p.Timeout, func(ctx context.Context, s *permitStore) error {
		shown, err := s.holders(ctx)
		switch {
		case err != nil:
			return err
		case p.JSON:
			return printJSON(c.stdout, shown)
		}
		return shown.print(c.stdout)
	})
}

// permitRevoke is the command that revokes a permit.
type permitRevoke struct {
	Holder  string        `arg:"" help:"The holder, as permit holders lists it."`
	Of      permitOf      `embed:""`
	Timeout time.Duration `help:"How long to wait for the answer." default:"5s"`
}

// Help is the detailed help.
func (permitRevoke) Help() string {
	return "The holder's permit is not renewed any more: its work is told to end, and the permit is free when the holder gives it back, or after the rule's ttl. " +
		"A holder that waits leaves the line.\n\nExit codes: 0 revoked; 1 there is no such holder; 2 a mistake; 3 the store does not answer."
}

// Run revokes it.
func (p *permitRevoke) Run(c *call) error {
	return p.Of.within(c, p.Timeout, func(ctx context.Context, s *permitStore) error {
		there, err := s.permits.Revoke(ctx, s.key, p.Holder)
		switch {
		case err != nil:
			return err
		case !there:
			return &failure{code: CodeNo, text: fmt.Sprintf("%q neither holds a permit of rule %q under this key nor waits for one", p.Holder, p.Of.Rule)}
		}
		fmt.Fprintln(c.stdout, "revoked")
		return nil
	})
}
