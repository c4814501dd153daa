// Package errtext writes errors of the library for people who see the program's own
// name beside them.
package errtext

import "strings"

// Text returns the text of an error without "headgate: " at its beginning: for
// programs that name the origin of the error themselves. Programs tell errors apart
// with errors.Is and errors.As.
func Text(err error) string { return strings.TrimPrefix(err.Error(), "headgate: ") }
