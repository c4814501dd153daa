// Package refusal recognizes the errors with which a server refuses a command. Redis sends errors
// as text, and its only code is the first word. So texts have to be compared, which only this
// package does.
package refusal

import (
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/redis/rueidis"
)

// Text returns the text of the server's error reply that err is or wraps, or "" if there is none.
func Text(err error) string {
	if err == nil {
		return "" // before anything is allocated
	}
	var refused *rueidis.RedisError
	if !errors.As(err, &refused) {
		return ""
	}
	return refused.Error()
}

// Is reports whether err is or wraps an error reply that begins with one of the codes,
// such as READONLY.
func Is(err error, codes ...string) bool {
	text := Text(err)
	return slices.ContainsFunc(codes, func(code string) bool { return strings.HasPrefix(text, code) })
}

// Damaged reports whether err is or wraps an error reply which says that a script could not read
// the value of a key: the value has another type, or the scripts did not write it. Servers before
// version 7 put words of their own before the script's error.
func Damaged(err error) bool {
	text := Text(err)
	if strings.HasPrefix(text, "WRONGTYPE") {
		return true
	}
	if !strings.Contains(text, "user_script") {
		return false
	}
	return slices.ContainsFunc([]string{"WRONGTYPE", "data string too short", "bad argument", "attempt to "},
		func(part string) bool { return strings.Contains(text, part) })
}

// Answered returns the error of a PING, or nil if the server answered it. The refusal MISCONF is an
// answer: a server that cannot save its data refuses even PING.
func Answered(err error) error {
	if Is(err, "MISCONF") {
		return nil
	}
	return err
}

// Lasting reports whether err is or wraps an answer to a new connection that stays the same until
// somebody changes the settings, here or at the server: of the password, the database, permissions
// or TLS. The other refusals are those of a server that is not ready, or has no room for connections.
func Lasting(err error) bool {
	if text := Text(err); text != "" {
		return !Is(err, "LOADING", "BUSY", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "MISCONF", "TRYAGAIN", "ERR max number of clients")
	}
	var certificate *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	var alert *net.OpError // the server's, such as that it wants a certificate
	return errors.As(err, &certificate) || errors.As(err, &plain) || errors.As(err, &alert) && alert.Op == "remote error"
}
