package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Ignore silences the warnings of one code, for a reason.
type Ignore struct {
	// Code is the warning's, such as CodeUncaught.
	Code string `json:"code"`
	// Reason says why the warning does not matter here. Required.
	Reason string `json:"reason"`
}

// check returns what is wrong, or "".
func (i Ignore) check() string {
	codes := Codes()
	switch {
	case !slices.ContainsFunc(codes, func(c Code) bool { return c.Code == i.Code }):
		return fmt.Sprintf("there is no warning %s; there are %s to %s", quote(i.Code), codes[0].Code, codes[len(codes)-1].Code)
	case strings.TrimSpace(i.Reason) == "":
		return fmt.Sprintf("the reason for ignoring %s is missing; say why it does not matter here", i.Code)
	}
	return ""
}
