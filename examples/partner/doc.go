// Package partner is an example: three processes that call a partner who blocks whoever
// exceeds its limit, and never do.
//
// The command api is the partner. It admits 60 requests in any two seconds, and blocks for
// good who sends more. The command worker is one process of the fleet. Its transport keeps to
// a limit below that, which it shares with the other processes through a Headgate server. The
// script run starts all of them, and then the same fleet without limits, which is blocked.
package partner
