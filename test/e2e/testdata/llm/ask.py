"""Asks providers with the official clients of OpenAI and Anthropic: ask.py URL KEY WHAT...

"answers" prints what the calls return, and "refusals" also how the clients understand what a gateway
refuses: a line of JSON for each call, and an empty one after those of a URL.
"""

import json
import sys

import anthropic
import openai

hello = [{"role": "user", "content": "Hello"}]
tool = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}


def show(name, value):
    print(json.dumps([name, value], sort_keys=True, separators=(",", ":")))


def plain(value):
    return value.model_dump(mode="json")


for url, key, what in zip(*[iter(sys.argv[1:])] * 3):
    one = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0)
    other = anthropic.Anthropic(base_url=url, api_key=key, max_retries=0, timeout=60)
    show("chat", plain(one.chat.completions.create(model="m", max_tokens=5, messages=hello)))
    show("tools", plain(one.chat.completions.create(model="m", max_tokens=5, messages=hello, tools=[{"type": "function", "function": tool}])))
    stream = one.chat.completions.create(model="m", max_completion_tokens=5, messages=hello, stream=True)
    show("stream", [plain(chunk) for chunk in stream])
    stream = one.chat.completions.create(model="m", max_tokens=5, messages=hello, stream=True, stream_options={"include_usage": True})
    show("stream with usage", [plain(chunk) for chunk in stream])
    with one.chat.completions.with_streaming_response.create(model="m", max_tokens=5, messages=hello, stream=True) as raw:
        show("raw stream", raw.read().decode())
    show("responses", plain(one.responses.create(model="m", max_output_tokens=5, input="Hello")))
    show("responses stream", [plain(e) for e in one.responses.create(model="m", max_output_tokens=5, input="Hello", stream=True)])
    show("embeddings", plain(one.embeddings.create(model="m", input="Hello")))
    show("models", [plain(m) for m in one.models.list()])
    show("messages", plain(other.messages.create(model="m", max_tokens=5, messages=hello)))
    with other.messages.stream(model="m", max_tokens=5, messages=hello) as stream:
        show("messages stream", [list(stream.text_stream), plain(stream.get_final_message())])
    for user, kind in ("limited", openai.RateLimitError), ("fail=before", openai.InternalServerError):
        try:
            one.chat.completions.create(model="m", max_tokens=5, messages=hello, user=user)
        except kind as e:
            show(user, [type(e).__name__, e.body, e.response.headers.get("retry-after")])

    if what == "refusals":

        def refused(name, call):
            try:
                call()
            except (openai.APIStatusError, anthropic.APIStatusError) as e:
                show(name, [type(e).__name__, e.status_code, str(e)])

        refused("large", lambda: one.chat.completions.create(model="m", max_tokens=20_000, messages=hello))
        refused("large messages", lambda: other.messages.create(model="m", max_tokens=20_000, messages=hello))
        refused("no price", lambda: one.chat.completions.create(model="x", max_tokens=1, messages=hello))
        refused("no price for messages", lambda: other.messages.create(model="x", max_tokens=1, messages=hello))
        stranger = openai.OpenAI(base_url=url + "/v1", api_key="nobody", max_retries=0)
        refused("stranger", lambda: stranger.chat.completions.create(model="m", max_tokens=1, messages=hello))
        # The clients wait by themselves as long as they are told, and then get their answer.
        patient, other = one.with_options(max_retries=2), other.with_options(max_retries=2)
        for _ in range(2):
            patient.chat.completions.create(model="paced", max_tokens=1, messages=hello)
            other.messages.create(model="paced", max_tokens=1, messages=hello)
        show("paced", "answered")

    print(flush=True)
