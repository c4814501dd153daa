// What is in progress and what bounds it: gates, permits with their holders, consumers.
import { h, swap, ask, send, head, card, table, num, missing, meter, chip, clock, duration, plural, ruleLink, twin, confirmation } from "/lib.js";
export const title = "Flow";

export async function show(page) {
  const note = h("div"), gates = h("div"), permits = h("div"), own = h("div"), consumers = h("div");
  const boxes = new Map(); // of consumers, so that an open table stays open
  const dialog = confirmation("Revoke this permit?", "Revoke the permit", () => page.guard(load));
  const gatesCard = card("", "Gates", "a limit is for each key, where there are keys", gates);
  const ownCard = card("", "In progress by key", "requests within an instance, which have no names", own);
  swap(page.root, head("Flow", "How much is in progress, who holds it, and what bounds it."), note, h("div", { class: "grid" },
    gatesCard,
    card("", "Permits and their holders", "fullest first", permits), ownCard,
    card("", "Consumers", "of queues, in other programs", consumers)), dialog);

  async function load() {
    const f = await ask("flow", { limit: 30 }, page.signal), here = f.instances[0].name;
    swap(note, missing([...f.instances, ...f.programs]));
    swap(gates, table("Gates", [["Gate"], ["Instance"], ["Kind"], ["Held", "n"], ["Keys", "n"], ["Limit", "n"], ["Waiting", "n"], ["Turned away", "n"]], f.gates.map((g) => [h("bdi", null, g.name), h("bdi", null, g.instance), chip(g.kind), [num(g.held), " ", meter(g.held / Math.max(1, g.limit * Math.max(1, g.keys)))], g.kind === "adaptive" ? "–" : num(g.keys), num(g.limit), num(g.waiting), h("span", { class: g.rejected ? "bad" : "soft" }, num(g.rejected))]),
      "No gate of an instance bounds what is in progress. A gateway has gates: for rules with in_progress, and for the concurrency and load of its file."));
    gatesCard.hidden = !f.gates.length && f.permits.length + f.consumers.length > 0;

    const shared = f.permits.filter((p) => p.shared), local = f.permits.filter((p) => !p.shared);
    swap(permits, shared.map((p) => held(p, here, dialog)), !shared.length && h("p", { class: "empty" }, "Nobody holds a permit of a rule with shared: true that this service knows of."),
      f.more_keys > 0 && h("p", { class: "soft small" }, "Not shown: up to " + plural(f.more_keys, "more key") + "."),
      f.unlisted && h("p", { class: "soft small" }, "There are so many keys that some are neither shown nor counted."));
    ownCard.hidden = !local.length;
    swap(own, table("In progress by key", [["Rule"], ["Key"], ["Instance"], ["In use", "n"], ["Limit", "n"], ["Waiting", "n"]], local.map((p) => [rule(p), keyText(p.key), h("bdi", null, p.instance), [num(p.in_use), " ", meter(p.in_use / Math.max(1, p.limit))], p.limit ? num(p.limit) : "–", num(p.waiting)])));

    swap(consumers, f.consumers.map((c) => {
      const id = c.program + "\n" + c.kind + "\n" + c.name;
      let box = boxes.get(id);
      if (!box) boxes.set(id, (box = { root: h("div", { class: "state" }), head: h("div"), rows: twin("Partitions") }));
      consumer(c, box);
      return box.root;
    }), !f.consumers.length && h("p", { class: "empty" }, f.programs.length ? "None of the programs that were asked shows metrics of a consumer." : "No program is asked. The flag --consumer names the Prometheus metrics of a program that consumes Kafka or RabbitMQ with Headgate."));
  }
  await page.every(3000, load);
}

const keyText = (key) => h("bdi", { class: "key" }, key.text || "(one counter for all)");
const rule = (p) => ruleLink(p.rule);

// held is one key with those who hold its permits and those who wait for them.
function held(p, here, dialog) {
  // The store of another instance cannot be reached from here, if it is that process itself.
  const reachable = !p.instance || p.instance === here, full = p.limit > 0 && p.in_use >= p.limit;
  const revoke = (holder) => () => dialog.ask(p.rule, (confirm) => send("POST", "/api/revoke", { rule: p.rule, key: p.key.id, holder: holder.id, confirm }),
    h("bdi", { class: "key" }, holder.text), " cannot renew its permit after that, and leaves the line. Until the permit ends, the holder may still be at work. The audit will say so.");
  const button = (x, what) => reachable && !x.revoked ? h("button", { class: "danger", type: "button", "data-f": "revoke" + p.rule + " " + p.key.id + " " + x.holder.id, "aria-label": "Revoke " + what + " " + x.holder.text, onclick: revoke(x.holder) }, "Revoke…") : x.revoked ? chip("revoked", "warn") : "";
  const rows = p.holders.map((x) => [h("bdi", { class: "key" }, x.holder.text), num(x.units), h("span", { class: "nowrap" }, clock(x.since), h("span", { class: "soft" }, " · for " + duration(Math.max(0, Date.now() - x.since)))), x.revoked ? "ends in " + duration(x.expires_in_ms) : duration(x.expires_in_ms), button(x, "the permit of")])
    .concat(p.waiters.map((x) => [h("bdi", { class: "key soft" }, x.holder.text), num(x.units), h("span", { class: "soft" }, "waits"), duration(x.expires_in_ms), button(x, "the place of")]));
  const more = [p.more_holders && plural(p.more_holders, "more holder"), p.more_waiters && num(p.more_waiters) + " more who wait"].filter(Boolean).join(", ");
  return h("div", { class: "state" },
    h("div", { class: "row" }, h("span", null, h("b", null, rule(p)), " ", keyText(p.key)), h("span", { class: "chips" }, p.instance && chip(p.instance), p.waiting > 0 && chip(num(p.waiting) + " waiting", "warn"))),
    p.error ? h("p", { class: "bad" }, p.error) : [meter(p.limit ? p.in_use / p.limit : 1, full ? "var(--bad-fill)" : "var(--accent)", true),
      h("div", { class: "small" }, h("b", null, num(p.in_use)), p.limit ? " of " + num(p.limit) + " in use" : " in use"),
      table("Holders of " + p.rule, [["Holder"], ["Units", "n"], ["Since"], ["Ends unless renewed", "n"], ["Revoke", "n"]], rows), more && h("p", { class: "soft small" }, "Not shown: " + more + ".")]);
}

// consumer shows one consumer in its box.
function consumer(c, box) {
  const fact = (text, value, kind) => h("div", { class: "fact " + (kind || "") }, h("b", null, value), h("span", null, text));
  swap(box.head, h("div", { class: "row" }, h("span", null, h("b", null, h("bdi", null, c.program)), " ", h("bdi", { class: "key" }, c.name)),
    h("span", { class: "chips" }, chip(c.kind === "kafka" ? "Kafka" : "RabbitMQ"), c.away && chip("not connected", "bad"), c.paused > 0 && chip(c.kind === "kafka" ? plural(c.paused, "partition") + " paused" : "paused", "warn"), c.behind > 0 && chip(plural(c.behind, "partition") + " shed", "warn"))),
    h("div", { class: "pairs" }, fact(c.kind === "kafka" ? "lag" : "wait in the queue", c.lag < 0 ? "–" : num(c.lag)), fact("handled now", num(c.running)), fact("in memory", num(c.held)), fact("age of the oldest", c.oldest_ms ? duration(c.oldest_ms) : "–"),
      fact("attempts", num(c.handled)), fact("failed", num(c.failed), c.failed ? "bad" : ""), fact("given up", num(c.given_up), c.given_up ? "bad" : ""), fact("held back", num(c.refused))));
  if (!c.partitions.length) { swap(box.root, box.head); return; }
  swap(box.rows.inner, table("Partitions of " + c.program, [["Topic"], ["Partition", "n"], ["Lag", "n"], ["Handled now", "n"], ["Oldest", "n"], ["State"]], c.partitions.map((p) => [h("bdi", { class: "key" }, p.topic), p.partition, p.lag < 0 ? "–" : num(p.lag), num(p.running), p.oldest_ms ? duration(p.oldest_ms) : "–", [p.paused && chip("paused", "warn"), p.behind && chip("sheds", "warn")].filter(Boolean)])),
    c.more_partitions && h("p", { class: "soft small" }, "Not shown: " + plural(c.more_partitions, "more partition") + " with less lag."));
  if (box.root.firstChild !== box.head || !box.rows.isConnected) swap(box.root, box.head, box.rows);
}
