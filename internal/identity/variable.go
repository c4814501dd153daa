package identity

import "strings"

// Variable returns the name of the variable to which some servers convert a header, as CGI, WSGI
// and FastCGI do. For them, X_Auth_User and X-Auth-User are the same.
func Variable(header string) string {
	return strings.Map(func(c rune) rune {
		if c > '~' {
			return '_'
		}
		return rune(folded(byte(c)))
	}, header)
}

func sameVariable(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if folded(a[i]) != folded(b[i]) {
			return false
		}
	}
	return true
}

func folded(c byte) byte {
	switch {
	case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		return c
	case 'A' <= c && c <= 'Z':
		return c + 'a' - 'A'
	}
	return '_'
}

// Usual reports whether the name of a header has only letters, digits and hyphens, as nearly all
// names do. No two of them have the same [Variable].
func Usual(header string) bool {
	for i := range len(header) {
		if folded(header[i]) == '_' && header[i] != '-' {
			return false
		}
	}
	return true
}
