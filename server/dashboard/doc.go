// Package dashboard serves the dashboard: pages for people, at an address of its own.
//
// # Basics
//
// A [Handler] serves the pages, which are embedded in the program. It signs administrators in, and
// passes the requests of the pages on to [insightapi.Handler]:
//
//	d := dashboard.New(dashboard.Options{API: api, Token: token, Logins: logins})
//	defer d.Close()
//
// GET /api/stream is a stream of server-sent events (SSE): once a second the figures of the last
// two minutes, and denials soon after they happen.
//
// # Security
//
// Whoever signs in with the admin token gets a session: a random number in a cookie that scripts
// cannot read and that browsers do not send with requests from other sites. Requests that change
// something are refused if they come from another site. Requests for a host name that is not listed
// are refused, to prevent DNS rebinding. The pages may load nothing from elsewhere and may not turn
// text into markup.
//
// Without a token, the dashboard is open to everybody who can reach its address, so it must then
// listen on the loopback interface only.
package dashboard
