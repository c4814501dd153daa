// Package llm reads calls to language models and the answers to them, as far as limits need it: who
// is asked, what the call may use at most, and what it has used.
//
// # Basics
//
// A door that passes calls on goes this way with each of them. It has a [Provider], and for each
// call a [Passage]:
//
//	path of the request ── [Provider.Asked] ──▶ the protocol, if it is a call
//	body of the request ── [Provider.Begin] ──▶ [Passage]: the most that the call may use, and the
//	    bytes for the provider: those of the client, unless a model's other name, a largest output
//	    or the wish for usage has to be put in
//	    the door reserves that under the rules, in one decision, or by their wish what is typical
//	    ([Passage.Reserve], [Habits])
//	headers of the request ── [Provider.Headers] ──▶ those for the provider
//	headers of the answer ── [Provider.Answered] ──▶ those for the client, and a [Meter]
//	body of the answer ── [Meter.Pass] or [Meter.Read] ──▶ the bytes for the client
//	    the door settles at [Passage.Settle]
//	a refusal ── [Provider.Refuse], [API.Limits] ──▶ the shape and the headers that the provider's clients know
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
