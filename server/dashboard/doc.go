// Package dashboard serves the dashboard: pages for people, on an address of their own.
//
// # Basics
//
// A [Handler] serves the pages, which are part of the program, signs administrators in, and
// hands what the pages ask on to [insightapi.Handler]:
//
//	d := dashboard.New(dashboard.Options{API: api, Token: token, Logins: logins})
//	defer d.Close()
//
// GET /api/stream is a stream of events (SSE): the figures of the last minute, once a
// second, and denials as they happen.
//
// # Security
//
// Whoever has shown the admin token gets a session: a random number in a cookie that scripts
// cannot read and that is sent with no request from another site. Requests that change
// something are refused if another site made them. Requests for a host name that is not
// listed are refused, so that no other site can have its name resolved to this address.
// The pages may load nothing from elsewhere and may not turn text into markup.
//
// Without a token the dashboard is open to everybody who reaches its address, and is meant
// for the loopback interface only.
package dashboard
