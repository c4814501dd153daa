package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// health is the command that asks a server for its health, for containers without another program
// for that.
type health struct {
	Remote  remote        `embed:"" group:"Server to ask"`
	Live    bool          `help:"Ask only whether the server runs, not whether it is ready. Use this for a supervisor that restarts the server: a restart does not bring the store back."`
	Timeout time.Duration `help:"How long to wait for the answer." default:"2s"`
}

// Help is the detailed help.
func (health) Help() string {
	return "Asks a server whether it is ready to decide (GET /readyz) or, with --live, whether it runs (GET /healthz).\n\n" +
		"Exit codes: 0 yes; 1 it is not ready; 2 a mistake in the command; 3 the server does not answer."
}

// Run asks, and prints what the server says.
func (h *health) Run(c *call) error {
	c.inTime(h.Timeout)
	if err := c.mistaken(); err != nil {
		return err
	}
	u, err := h.Remote.url(c)
	if err != nil {
		return err
	}
	path := "readyz"
	if h.Live {
		path = "healthz"
	}
	ctx, cancel := context.WithTimeout(c.ctx, h.Timeout)
	defer cancel()
	status, text, err := h.Remote.send(ctx, http.MethodGet, u.JoinPath(path), nil, "")
	if err != nil {
		return err
	}
	switch status {
	case http.StatusOK:
		var answer struct{ Status, Detail string }
		if json.Unmarshal(text, &answer) != nil || answer.Status == "" {
			return notHeadgate(u, status)
		}
		fmt.Fprintln(c.stdout, strings.Join(slices.DeleteFunc([]string{answer.Status, answer.Detail}, func(s string) bool { return s == "" }), ": "))
		return nil
	case http.StatusServiceUnavailable:
		return &failure{code: CodeNo, text: fmt.Sprintf("the server at %s cannot decide", u.Host), hint: "its log says why"}
	}
	return notHeadgate(u, status)
}
