// Package llm reads calls to language models and the answers to them, as far as limits need it: who
// is asked, what the call may use at most, and what it has used.
//
// # Basics
//
// A door that passes calls on goes this way with each of them:
//
//	body of the request ── [Read] ──▶ [Call]: model, stream, declared output, bytes of input
//	Call and policy.Model ── [Call.Estimate] ──▶ policy.Usage, the most that it may use
//	    the door reserves that under the rules, in one decision
//	Call ── [Call.Body] ──▶ the bytes for the provider: those of the client, unless a model's other
//	    name, a largest output or the wish for usage has to be put in
//	body of the answer ── [Call.Meter] ──▶ the bytes for the client, and [Meter.Usage] at the end
//	    the door settles at that
//	a refusal ── [API.Error], [API.Limits] ──▶ the shape and the headers that the provider's clients know
//
// [Of] says by its path which protocol a request speaks. OpenAI's Chat Completions, Responses and
// Embeddings and Anthropic's Messages are known, and so is what speaks the same: vLLM, Ollama, LiteLLM.
//
// # Estimates
//
// No tokenizer makes more tokens than there are bytes, so the bytes of a request bound its input.
// What is not in its bytes (an image by its address, a file, a conversation that the provider keeps)
// is bounded by what the policy says of the model, and refused if it says nothing.
//
// # Caveats
//
// What a provider could read in two ways is refused: a key that an object has twice, numbers as
// texts, a field in another spelling. All else passes untouched. Prompts and answers are not kept:
// a [Meter] remembers numbers, and at most one event that it has to look at as a whole.
package llm
