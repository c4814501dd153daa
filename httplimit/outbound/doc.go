// Package outbound is an [http.RoundTripper] for calls to partners who limit us.
//
// # Basics
//
// A [Transport] stands around another one. It keeps calls within limits of our own, which
// all processes share through the store; it reads what the partner says of its limits, and
// slows down before the partner has to refuse; and it retries what can be retried without
// harm, within a budget:
//
//	rule := headgate.MustRule("partner", headgate.PerSecond(50))
//	transport, err := outbound.New(store, http.DefaultTransport, outbound.Config{
//		Limits: []outbound.Limit{{Rules: []*headgate.Rule{rule}}},
//	})
//	if err != nil {
//		return err
//	}
//	client := &http.Client{Transport: transport}
//
// Where a partner refuses calls all the same, and asks for short pauses, the pace is learnt
// that it admits, and all processes keep to it together.
//
// A call waits while there is time: for [Config.MaxWait], and not beyond its context's
// deadline. If there is not enough, it fails at once with a [*headgate.DeniedError], and
// nothing is sent.
//
// # Caveats
//
// Only requests that are idempotent by their method, or have an Idempotency-Key, are
// retried, and only if their body can be had again from [http.Request.GetBody].
//
// What is learnt from a partner's headers is learnt when an answer comes: what is in
// progress by then cannot be called back. Who must never exceed a limit sets one of his
// own, somewhat below the partner's.
package outbound
