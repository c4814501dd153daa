package identity

import "strings"

// Hostname is the host of a request without a port and in lower case, so that one
// host has one spelling.
func Hostname(host string) string {
	// A port may have leading zeros, or no digits at all.
	if colon := strings.LastIndexByte(host, ':'); colon >= 0 && strings.Trim(host[colon+1:], "0123456789") == "" {
		host = host[:colon]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
