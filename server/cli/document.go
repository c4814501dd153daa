package cli

import (
	"fmt"

	"github.com/headgate/headgate/server/document"
)

// documentRequest is the command that writes documentation of limits for an API's clients.
type documentRequest struct {
	File    string   `arg:"" help:"Policy file."`
	Format  string   `help:"Output format: markdown, html or openapi." type:"choice" of:"markdown html openapi" default:"markdown"`
	Headers string   `help:"Rate limit headers sent to clients: x-ratelimit, ratelimit-triple, draft-11 or none." type:"choice" of:"x-ratelimit ratelimit-triple draft-11 none" default:"x-ratelimit" env:"HEADGATE_HEADERS"`
	Title   string   `help:"The heading." default:"Rate limits"`
	Keys    hashKeys `embed:"" group:"Hash keys"`
}

// Help is the detailed help.
func (documentRequest) Help() string {
	return "The section tells clients their limits by operation and tariff, the headers, the answer to a request over a limit, and how to retry. Rules in shadow mode, limits that all clients share, overrides, lists, and rules for particular clients or addresses are left out; standard error lists these rules with the reasons.\n\n" +
		"Markdown and HTML are sections of a page; openapi is a fragment with the response TooManyRequests."
}

// Run writes the document.
func (r *documentRequest) Run(c *call) error {
	if err := c.mistaken(); err != nil {
		return err
	}
	set, err := r.Keys.policy(r.File)
	if err != nil {
		return err
	}
	d, err := document.New(set, document.Options{Title: r.Title, Dialect: r.Headers})
	if err != nil {
		return err
	}
	for _, l := range d.LeftOut {
		fmt.Fprintf(c.stderr, "headgate: the rule %s is left out: %s\n", l.Rule, l.Why)
	}
	text := d.Markdown()
	switch r.Format {
	case "html":
		text, err = d.HTML()
	case "openapi":
		text, err = d.OpenAPI()
	}
	if err != nil {
		return fmt.Errorf("writing the document: %w", err)
	}
	fmt.Fprint(c.stdout, text)
	return nil
}
