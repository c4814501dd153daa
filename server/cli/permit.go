package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/inprogress"
	"github.com/headgate/headgate/server/app"
	"github.com/headgate/headgate/store"
)

// permit has the commands about permits that all processes share.
type permit struct {
	Run     permitRun     `cmd:"" help:"Hold a permit while a command runs."`
	Holders permitHolders `cmd:"" help:"List who holds permits, and who is waiting for one."`
	Revoke  permitRevoke  `cmd:"" help:"Stop a holder's permit from being renewed."`
}

// permitOf has the flags that name the permits in a store.
type permitOf struct {
	Config string   `help:"Policy file, with --store. Without one, the sample policy." placeholder:"FILE" env:"HEADGATE_CONFIG"`
	Keys   hashKeys `embed:"" group:"Hash keys"`
	Rule   string   `help:"Name of a rule that has in_progress with shared: true." required:"" placeholder:"NAME"`
	Key    string   `help:"Key that the rule counts under, as for check." placeholder:"KEY"`
}

// permitAt has the flags of commands that ask a server, or the store itself, about permits.
type permitAt struct {
	admin `embed:""`
	Store string   `help:"Use a store directly instead of a server, with the rules of --config: redis://… or postgres://…, as for serve." placeholder:"URL" env:"HEADGATE_STORE"`
	Of    permitOf `embed:""`
}

// permitKeeper is a store or a server that knows the permits.
type permitKeeper interface {
	holders(ctx context.Context) (*shownHolders, error)
	revoke(ctx context.Context, holder string) (bool, error)
	Close() error
}

// open returns the keeper to ask. The caller must close it.
func (p *permitAt) open(ctx context.Context, c *call) (permitKeeper, error) {
	ofStore, err := c.asksStore(p.Store)
	if err != nil {
		return nil, err
	}
	if ofStore {
		c.inTime(p.Timeout)
		if err := c.mistaken(); err != nil {
			return nil, err
		}
		return p.Of.open(ctx, p.Store, 1, p.Timeout)
	}
	a, err := p.asker(c, "docs/rules.md describes in_progress")
	if err != nil {
		return nil, err
	}
	return &permitServer{a, p.Of.Rule, p.Of.Key}, nil
}

// within calls do with the keeper and closes it afterwards, all within the timeout.
func (p *permitAt) within(c *call, do func(context.Context, permitKeeper) error) error {
	ctx, cancel := context.WithTimeout(c.ctx, p.Timeout)
	defer cancel()
	keeper, err := p.open(ctx, c)
	if err != nil {
		return err
	}
	defer keeper.Close()
	return do(ctx, keeper)
}

// permitServer asks a server about the permits in its store.
type permitServer struct {
	*asker
	rule, key string
}

func (s *permitServer) holders(ctx context.Context) (*shownHolders, error) {
	shown := new(shownHolders)
	_, err := s.send(ctx, http.MethodGet, "/v1/permits/holders", url.Values{"rule": {s.rule}, "key": {s.key}}, nil, shown)
	return shown, err
}

func (s *permitServer) revoke(ctx context.Context, holder string) (bool, error) {
	body := map[string]string{"rule": s.rule, "key": s.key, "holder": holder}
	var answer struct {
		Revoked bool `json:"revoked"`
	}
	_, err := s.send(ctx, http.MethodPost, "/v1/permits/revoke", nil, body, &answer)
	return answer.Revoked, err
}

// Close implements permitKeeper. There is no connection to close.
func (*permitServer) Close() error { return nil }

// permitStore is an open store with its permits, and the bound on work in progress for a rule and a
// key.
type permitStore struct {
	*app.Store
	permits store.Permits
	bound   policy.Bound
	key     string // of the permits
}

// open opens the store; the caller must close it. If timeout is zero, calls may take as long as the
// store usually allows.
func (p *permitOf) open(ctx context.Context, at string, cost int64, timeout time.Duration) (*permitStore, error) {
	set, err := p.Keys.policy(p.Config)
	if err != nil {
		return nil, err
	}
	bound, err := set.Bound(p.Rule, p.Key, cost)
	if invalid, ok := errors.AsType[*headgate.InvalidError](err); ok {
		return nil, usage(fmt.Sprintf("rule %q: %s", p.Rule, joinLines(invalid.Problems.Texts())), "docs/rules.md describes in_progress")
	}
	if err != nil {
		return nil, err
	}
	if !bound.Rule.InProgress.Shared {
		return nil, usage(fmt.Sprintf("rule %q counts what is in progress in each process by itself", p.Rule), "add shared: true to its in_progress")
	}
	s, err := openStore(ctx, at, timeout)
	if err != nil {
		return nil, err
	}
	permits, err := store.PermitsOf(s.Store)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &permitStore{Store: s, permits: permits, bound: bound, key: inprogress.StoreKey(bound.Rule.Name, bound.Key)}, nil
}

// permitHolders is the command that lists holders.
type permitHolders struct {
	At   permitAt `embed:""`
	JSON bool     `help:"Print JSON." name:"json"`
}

// Help is the detailed help.
func (permitHolders) Help() string {
	return "Exit codes: 0 the list was printed, even if it is empty; 2 a mistake; 3 the server or store does not answer.\n\n" +
		"Examples:\n" +
		"  headgate permit holders --rule report --key tenant7\n" +
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

// shownHolders lists who holds permits and who waits for them.
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
		return nil, s.damaged(err)
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

// revoke revokes the holder's permit, so that it cannot be renewed.
func (s *permitStore) revoke(ctx context.Context, holder string) (bool, error) {
	there, err := s.permits.Revoke(ctx, s.key, holder)
	return there, s.damaged(err)
}

// damaged adds a hint if err says that the permits in the store cannot be read. No command deletes
// them, because held permits would then be forgotten while their work goes on. A person has to
// decide that, after looking at the work.
func (s *permitStore) damaged(err error) error {
	if !errors.Is(err, headgate.ErrDamaged) {
		return err
	}
	return &failure{
		code: CodeUnavailable,
		text: fmt.Sprintf("what the store keeps of the permits of rule %q under this key is damaged, so that none is given or renewed: %s", s.bound.Rule.Name, errtext.Text(err)),
		hint: "see that no work is in progress, and delete it: docs/failures.md says under which name it is (damaged permits)",
	}
}

// print writes a summary line, and one line for each holder.
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
	return p.At.within(c, func(ctx context.Context, s permitKeeper) error {
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
	Holder string   `arg:"" help:"The holder, as listed by permit holders."`
	At     permitAt `embed:""`
}

// Help is the detailed help.
func (permitRevoke) Help() string {
	return "The holder's permit is no longer renewed: its work is told to stop, and the permit is free when the holder releases it, or after the rule's ttl. " +
		"A waiting holder leaves the queue.\n\nExit codes: 0 revoked; 1 there is no such holder; 2 a mistake; 3 the server or store does not answer.\n\n" +
		"Example:\n" +
		"  headgate permit revoke --rule report --key tenant7 --admin-token-file admin.token worker-3/4711"
}

// Run revokes it.
func (p *permitRevoke) Run(c *call) error {
	return p.At.within(c, func(ctx context.Context, s permitKeeper) error {
		there, err := s.revoke(ctx, p.Holder)
		switch {
		case err != nil:
			return err
		case !there:
			return &failure{code: CodeNo, text: fmt.Sprintf("%q neither holds a permit of rule %q under this key nor waits for one", p.Holder, p.At.Of.Rule)}
		}
		fmt.Fprintln(c.stdout, "revoked")
		return nil
	})
}
