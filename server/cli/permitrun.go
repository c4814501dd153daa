package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/shared"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/inprogress"
)

// permitRun is the command that runs another program while it holds a permit.
type permitRun struct {
	Store      string        `help:"The store that all processes share: redis://… or postgres://…, as for serve." placeholder:"URL" required:"" env:"HEADGATE_STORE"`
	Of         permitOf      `embed:""`
	Cost       int64         `help:"Permits to hold." default:"1"`
	Grace      time.Duration `help:"How long after SIGTERM the command gets SIGKILL, when its permit is lost." default:"10s"`
	Foreground bool          `help:"Let the command read from the terminal. Signals then reach only the command, not the processes it has started."`
	Command    []string      `arg:"" help:"The command, after --." placeholder:"COMMAND"`
}

const (
	// codeNotRun is the exit code for a command that cannot be run, as in shells.
	codeNotRun = 127
	// codeSignal is added to the number of the signal that has ended a command, as in
	// shells.
	codeSignal = 128
	// giveBackWithin is how long permit run tries to give the permit back to the store.
	giveBackWithin = 5 * time.Second
	// maxOwner is how much of the host's name is used in the names of holders.
	maxOwner = 64
)

// Help is the detailed help.
func (permitRun) Help() string {
	return "Waits for a permit as long as the rule allows, runs the command, and releases the permit when the command ends. " +
		"SIGINT, SIGTERM, SIGHUP and SIGQUIT are forwarded. The command's fence is in HEADGATE_PERMIT_EPOCH and HEADGATE_PERMIT_SLOTS. " +
		"If the permit is lost, the command gets SIGTERM and, after --grace, SIGKILL.\n\n" +
		"Exit codes: that of the command, or 128 plus the number of the signal that ended it; 1 there was no permit, or it was lost; 2 a mistake; 3 the store does not answer; 127 the command cannot be run.\n\n" +
		"Example:\n" +
		"  headgate permit run --config headgate.yaml --store redis://127.0.0.1:6379/0 --rule report --key tenant7 -- pg_dump shop"
}

// Run holds a permit while the command runs.
func (p *permitRun) Run(c *call) error {
	c.atCost(p.Cost)
	c.within("grace", p.Grace >= 0, fmt.Sprintf("%v, must not be negative", p.Grace))
	if err := cmp.Or(c.mistaken(), notMemory(p.Store)); err != nil {
		return err
	}
	// From here on, signals are received for the command. Until it runs, they end the wait for the
	// permit.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	waiting, stop := signal.NotifyContext(c.ctx, syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	s, err := p.Of.open(waiting, p.Store, p.Cost, 0)
	if err != nil {
		return err
	}
	defer s.Close()
	name, err := os.Hostname()
	if err != nil || len(name) > maxOwner {
		name = "permit-run"
	}
	keeper := inprogress.New(inprogress.Options{Permits: s.permits, Owner: name + "/" + strconv.Itoa(os.Getpid())})
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), giveBackWithin)
		defer cancel()
		// If giving it back fails, the lease ends by itself.
		_ = keeper.Close(ctx)
	}()
	held, err := keeper.Enter(waiting, []policy.Bound{s.bound}, nil)
	if err != nil {
		return s.noPermit(waiting, err)
	}
	defer inprogress.Leave(held, flow.Ignore)
	if waiting.Err() != nil {
		return interrupted()
	}
	code, err := p.run(inprogress.Context(context.WithoutCancel(c.ctx), held), c, signals)
	if err != nil || code == 0 {
		return err
	}
	return &failure{code: code}
}

func interrupted() error {
	return &failure{code: CodeNo, text: "interrupted while waiting for a permit"}
}

// noPermit returns an error that says why the command does not run, and who holds the permits.
func (s *permitStore) noPermit(ctx context.Context, err error) error {
	refusal, refused := errors.AsType[*inprogress.Refusal](err)
	switch {
	case refused && refusal.Rejection.Reason == flow.ReasonTooLarge:
		return usage("no permit: "+refusal.Detail(), "lower --cost, or raise the limit of the rule")
	case refused:
		text := "no permit: " + refusal.Detail()
		if held, err := s.holders(ctx); err == nil {
			var list strings.Builder
			_ = held.print(&list) // writes to memory
			text += "\n" + strings.TrimSuffix(list.String(), "\n")
		}
		return &failure{code: CodeNo, text: text, hint: "try again later, or give the rule's in_progress a longer wait"}
	case ctx.Err() != nil:
		return interrupted()
	}
	return err
}

// run runs the command and returns when it has ended. The context held ends when the permit is
// lost.
func (p *permitRun) run(held context.Context, c *call, signals <-chan os.Signal) (code int, err error) {
	child := exec.Command(p.Command[0], p.Command[1:]...) //nolint:gosec,noctx // running what the caller says is what this is for; it is ended by signals
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, c.stdout, c.stderr
	child.Env = os.Environ()
	if fence, err := shared.FenceOf(held); err == nil {
		epoch, slots, _ := strings.Cut(fence.String(), " ")
		child.Env = append(child.Env, "HEADGATE_PERMIT_EPOCH="+epoch, "HEADGATE_PERMIT_SLOTS="+slots)
	}
	// The system ends the command when the thread that started it ends, so the thread must stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	bind(child, !p.Foreground)
	if err := child.Start(); err != nil {
		return 0, &failure{code: codeNotRun, text: fmt.Sprintf("the command cannot be run: %v", err)}
	}
	ended := make(chan struct{})
	var watching sync.WaitGroup
	lost := false
	watching.Go(func() { lost = p.watch(held, c, child, signals, ended) })
	err = child.Wait()
	close(ended)
	watching.Wait()
	exited, isExit := errors.AsType[*exec.ExitError](err)
	switch {
	case lost:
		if !p.Foreground {
			// Processes that the command has left behind have no permit either.
			signalChild(child, syscall.SIGKILL, true)
		}
		return CodeNo, nil
	case err == nil:
		return 0, nil
	case !isExit:
		return 0, fmt.Errorf("waiting for the command: %w", err)
	}
	if status, ok := exited.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return codeSignal + int(status.Signal()), nil
	}
	return exited.ExitCode(), nil
}

// watch passes signals on to the command, and ends it if the permit is lost. It reports whether
// that happened.
func (p *permitRun) watch(held context.Context, c *call, child *exec.Cmd, signals <-chan os.Signal, ended <-chan struct{}) (lost bool) {
	gone := held.Done()
	var kill <-chan time.Time
	for {
		select {
		case <-ended:
			return lost
		case s := <-signals:
			signalChild(child, s, !p.Foreground)
		case <-gone:
			gone, lost = nil, true
			fmt.Fprintf(c.stderr, "headgate: the permit is lost, so the command is ended: %v\n", context.Cause(held))
			signalChild(child, syscall.SIGTERM, !p.Foreground)
			kill = time.After(p.Grace)
		case <-kill:
			signalChild(child, syscall.SIGKILL, !p.Foreground)
		}
	}
}
