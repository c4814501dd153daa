// Package extproc serves envoy.service.ext_proc.v3.ExternalProcessor, by which Envoy has calls to
// language models limited by their tokens and their price.
//
// # Basics
//
//	service := extproc.New(decider, extproc.Options{Describe: describer.Describe})
//	service.Register(server) // a *grpc.Server
//
// Envoy opens a stream for each request. The service asks by mode_override only for what it needs:
//
//	request headers ──▶ the descriptor; a call's body is asked for, buffered
//	request body ──▶ the call, and one decision about all that it may use; the body for the provider
//	answer's headers ──▶ the headers for the client; the body of a good answer is asked for, streamed
//	pieces of the answer ──▶ the usage, while they pass
//	the end, or the stream's ──▶ the settlement
//
// What a call may use, what it has used, and how a refusal looks are the business of package llm.
// Settings of one filter or route are parameters in the [Metadata] of its stream.
//
// # Caveats
//
// Envoy waits for the answer to each message, as long as its message_timeout says. A filter with
// failure_mode_allow lets requests pass uncounted while the service is away. In observability_mode
// Envoy waits for no answer, so nothing could be limited: such streams are refused.
//
// A status of 500 and more may be Envoy's own, for a provider that still works. It counts as the
// provider's refusal, which costs nothing, only if the attribute response.code_details says so.
package extproc
