package policy

import (
	"fmt"
	"strings"
)

// Ignore silences the warnings of one code, for a reason. Package lint makes the warnings.
type Ignore struct {
	// Code is the code of the warnings, such as "HG004" (lint.Uncaught).
	Code string `json:"code"`
	// Reason says why the warnings do not matter here. Required.
	Reason string `json:"reason"`
}

// check returns what is wrong with the Ignore, or "". It does not know whether lint has such a
// code.
func (i Ignore) check() string {
	switch {
	case i.Code == "":
		return "the code of the warning to ignore is missing; it is one such as HG004"
	case strings.TrimSpace(i.Reason) == "":
		return fmt.Sprintf("the reason for ignoring %s is missing; say why it does not matter here", i.Code)
	}
	return ""
}
