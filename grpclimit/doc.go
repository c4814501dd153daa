// Package grpclimit limits calls of gRPC: interceptors for servers and for clients.
//
// # Basics
//
// A rule, what it counts by, and the interceptors for a server:
//
//	perClient := headgate.MustRule("client", headgate.PerMinute(60))
//	limit, err := grpclimit.NewServer(memory.New(), grpclimit.Limit(grpclimit.ByAPIKey(), perClient))
//	if err != nil {
//		return err // it lists every mistake in the options
//	}
//	server := grpc.NewServer(limit.Options()...)
//
// Which do you want? [Limit] where the program says which rules bind: once for each
// key, all of them charged together or none. [Policy] where a policy.Set does, by the
// facts about a call. [MessageLimit] for the messages that a client sends over a
// stream; the others count the opening of a stream as one call.
//
// An admitted call goes on with headers that tell the client what is left
// ([Headers]). A denied one ends with RESOURCE_EXHAUSTED, whose details are a
// google.rpc.RetryInfo and a google.rpc.QuotaFailure, and trailers with the same
// headers and retry-after. A leaky bucket's delay holds the call, at most for
// [MaxDelay].
//
// A client that calls others keeps to what they say, and to limits of its own:
//
//	limit, err := grpclimit.NewClient(store, grpclimit.ClientLimit(grpclimit.ByTarget(), perPartner))
//	conn, err := grpc.NewClient(target, limit.Options()...)
//
// # Caveats
//
// Metadata is what the client chooses to send, as headers are: what package
// httplimit says of identity holds here. Counting by [ByCertificate] or by a user
// whom authentication has found is safe; authentication's interceptors must come
// first in the chain.
//
// Health checks and reflection are calls too. [Cost] can let them pass.
//
// The store's failure lets calls in unless [OnStoreError] says otherwise, but a call
// whose own context has ended is never let in by that.
package grpclimit
