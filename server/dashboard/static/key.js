// One key: how much of each limit it has used, and what it did lately.
import { h, swap, ask, send, card, table, num, duration, link, missing, meter, chip } from "/lib.js";
import { denialRows, denialHeads } from "/denials.js";
export const title = "Key";

export async function show(page) {
  const rule = page.params.get("rule"), key = page.params.get("key"), tier = page.params.get("tier");
  const top = h("div"), note = h("div"), states = h("div"), counts = h("div"), denials = h("div");
  let report;
  const dialog = confirmReset(() => report, () => page.guard(load));
  const reset = h("button", { class: "danger", type: "button", onclick: () => dialog.ask() }, "Reset…");
  swap(page.root, h("div", { class: "head" }, top, reset), note, h("div", { class: "grid" }, card("c7", "Limits", "as the store has them now", states), card("c5", "Lately", "the last two hours", counts), card("", "Last denials", "at most one a second", denials)), dialog);
  top.className = "grow";
  async function load() {
    report = await ask("key", { rule, key, tier }, page.signal);
    const full = report.states.filter((s) => !s.error && s.remaining <= 0);
    swap(top, h("p", { class: "crumb" }, link("/rule", { rule }, null, h("bdi", null, rule)), " · key"), h("h1", { class: "key" }, h("bdi", null, report.key.text || "(one counter for all)")),
      h("p", { class: "lead" }, full.length ? "Denied now by " + full[0].rule + ": " + full[0].limit + " is used up. One more unit fits in " + duration(full[0].retry_after_ms) + "." : "Every limit has room."));
    swap(note, missing(report.instances));
    swap(states, report.states.map((s) => {
      const used = (s.capacity - s.remaining) / s.capacity;
      return h("div", { class: "state" }, h("div", { class: "row" }, h("span", null, h("b", null, h("bdi", null, s.rule)), " ", h("span", { class: "key" }, s.limit)), h("span", { class: "chips" }, s.tier && chip(s.tier === "*" ? "others" : s.tier), s.mode !== "enforce" && chip(s.mode, "shade"), chip(s.algorithm.replaceAll("_", " ")))),
        s.error ? h("p", { class: "bad" }, s.error) : [meter(used, used >= 1 ? "var(--bad-fill)" : used >= 0.8 ? "var(--warn)" : "var(--good-fill)", true), h("div", { class: "row small" }, h("span", null, h("b", null, num(s.remaining)), " of " + num(s.capacity) + " left"), h("span", { class: "soft" }, s.retry_after_ms ? "the next unit in " + duration(s.retry_after_ms) + " · " : "", s.reset_after_ms ? "all free in " + duration(s.reset_after_ms) : "nothing used"))]);
    }), report.instances.length > 1 && h("p", { class: "soft small" }, "Seen from " + report.instances[0].name + ". With a memory store, other instances have counters of their own."));
    swap(counts, table("Counts by rule", [["Rule"], ["Units", "n"], ["Denials", "n"], ["In shadow", "n"]], report.counts.map((c) => [link("/rule", { rule: c.rule }, null, h("bdi", null, c.rule)), count(c.use), h("span", { class: c.denied ? "bad" : "soft" }, count(c.denied)), count(c.shadow)]), "It is not among the keys with most to do."));
    swap(denials, table("Denials of this key", denialHeads(false), denialRows(report.denials, false), "None is remembered."));
  }
  await page.every(3000, load);
}

const count = (c) => (c ? num(c.count) + (c.error ? " ± " + num(c.error) : "") : "–");

// confirmReset has people write the name of the rule before anything is forgotten.
function confirmReset(report, done) {
  const field = h("input", { autocomplete: "off", spellcheck: "false", id: "confirm", required: true }), go = h("button", { class: "danger", disabled: true }, "Forget what it has used"), problem = h("p", { class: "bad", role: "alert" }), name = h("bdi", { class: "key" }), who = h("bdi", { class: "key" });
  const dialog = h("dialog", { "aria-labelledby": "reset-title" }, h("form", { onsubmit: async (e) => {
    e.preventDefault();
    try { await send("POST", "/api/reset", { rule: report().rule, key: report().key.id, confirm: field.value }); dialog.close(); done(); } catch (wrong) { problem.textContent = wrong.message; }
  } }, h("h2", { id: "reset-title" }, "Reset this key?"), h("p", null, "What ", who, " has used under the rule is forgotten for good, on all instances that share the store. The audit will say so."), h("label", { for: "confirm" }, h("span", null, "Write the name of the rule, ", name, ", to go on"), field), problem, h("div", { class: "row" }, go, h("button", { type: "button", onclick: () => dialog.close() }, "Leave it"))));
  field.addEventListener("input", () => { go.disabled = field.value !== report().rule; });
  dialog.ask = () => { if (!report()) return; name.textContent = report().rule; who.textContent = report().key.text; field.value = ""; go.disabled = true; problem.textContent = ""; dialog.showModal(); };
  return dialog;
}
