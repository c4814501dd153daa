// Makes the calls of ask.py with the official clients for Node.js, and prints the same: ask.mjs URL KEY WHAT...
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const messages = [{ role: "user", content: "Hello" }];
const tools = [{ type: "function", function: { name: "f", description: "d", parameters: { type: "object", properties: {} } } }];

const show = (name, value) => console.log(JSON.stringify([name, value]));
async function all(items) {
  const list = [];
  for await (const item of await items) list.push(item);
  return list;
}
async function refused(name, call, said) {
  try {
    await call;
  } catch (e) {
    if (!(e instanceof OpenAI.APIError || e instanceof Anthropic.APIError)) throw e;
    show(name, [e.constructor.name, ...said(e)]);
  }
}

const args = process.argv.slice(2);
while (args.length > 0) {
  const [url, key, what] = args.splice(0, 3);
  const openai = (apiKey) => new OpenAI({ baseURL: url + "/v1", apiKey, maxRetries: 0 });
  const one = openai(key);
  const other = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0, timeout: 60_000 });
  const chat = (more, client = one) => client.chat.completions.create({ model: "m", max_tokens: 5, messages, ...more });
  const message = (more, client = other) => client.messages.create({ model: "m", max_tokens: 5, messages, ...more });
  const response = (more) => one.responses.create({ model: "m", max_output_tokens: 5, input: "Hello", ...more });

  show("chat", await chat());
  show("tools", await chat({ tools }));
  show("stream", await all(chat({ max_tokens: undefined, max_completion_tokens: 5, stream: true })));
  show("stream with usage", await all(chat({ stream: true, stream_options: { include_usage: true } })));
  show("raw stream", await (await chat({ stream: true }).asResponse()).text());
  show("responses", await response());
  show("responses stream", await all(response({ stream: true })));
  show("embeddings", await one.embeddings.create({ model: "m", input: "Hello" }));
  show("models", await all(one.models.list()));
  show("messages", await message());
  const stream = other.messages.stream({ model: "m", max_tokens: 5, messages });
  const words = [];
  stream.on("text", (word) => words.push(word));
  const whole = await stream.finalMessage();
  show("messages stream", [words, whole]);
  const body = (e) => [e.status, e.error, e.headers.get("retry-after")];
  await refused("limited", chat({ user: "limited" }), body);
  await refused("fail=before", chat({ user: "fail=before" }), body);

  if (what === "refusals") {
    const text = (e) => [e.status, e.message];
    await refused("large", chat({ max_tokens: 20_000 }), text);
    await refused("large messages", message({ max_tokens: 20_000 }), text);
    await refused("no price", chat({ model: "x" }), text);
    await refused("no price for messages", message({ model: "x" }), text);
    await refused("stranger", chat({}, openai("nobody")), text);
    // The clients wait by themselves as long as they are told, and then get their answer.
    const patient = { model: "paced", max_tokens: 1 };
    for (let i = 0; i < 2; i++) {
      await chat(patient, one.withOptions({ maxRetries: 2 }));
      await message(patient, other.withOptions({ maxRetries: 2 }));
    }
    show("paced", "answered");
  }
  console.log();
}
