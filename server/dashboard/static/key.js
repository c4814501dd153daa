// One key: how much of each limit it has used, when units become free, what it did lately.
import { h, swap, ask, send, card, table, num, duration, clock, lines, plot, within, said, happened, minute, ranges, rangeOf, ruleLink, missing, meter, chip, svg, twin, confirmation } from "/lib.js";
import { denialRows, denialHeads } from "/denials.js";
export const title = "Key";

export async function show(page) {
  const rule = page.params.get("rule"), key = page.params.get("key"), tier = page.params.get("tier");
  const asked = plot(page, "Units that the key asked for, per minute", [{ label: "Units", color: "--accent", fill: true, of: (m) => m.units }]), marks = twin("What happened"), rows = twin("As a table"), answers = h("dl", { class: "answers" });
  const top = h("div"), note = h("div"), states = h("div"), counts = h("div"), denials = h("div");
  const boxes = new Map(); // of limits, so that an open table stays open
  let report;
  const dialog = confirmation("Reset this key?", "Forget what it has used", () => page.guard(load)), other = override(() => report);
  const reset = h("button", { class: "danger", type: "button", onclick: () => report && dialog.ask(report.rule, (confirm) => send("POST", "/api/reset", { rule: report.rule, key: report.key.id, confirm }), "What ", h("bdi", { class: "key" }, report.key.text), " has used under the rule is forgotten for good, on all instances that share the store. The audit will say so.") }, "Reset…"), change = h("button", { type: "button", onclick: () => other.ask() }, "Override…");
  swap(page.root, h("div", { class: "head" }, top, h("div", { class: "row" }, change, reset, ranges(page))), note, h("div", { class: "grid" }, card("", "Seven questions", null, answers), card("c7", "Limits", "as the store has them now", states), card("c5", "Lately", "the last two hours", counts), card("", "What it asked for", "units per minute under the rule, admitted and denied; where others were busier, at most so many", asked, rows, marks), card("", "Last denials", "at most one a second", denials)), dialog, other);
  top.className = "grow";
  async function load() {
    report = await ask("key", { rule, key, tier }, page.signal);
    const now = Date.now();
    const answer = Object.fromEntries(report.answers.map((a) => [a.question, said(a.text)]));
    swap(top, h("p", { class: "crumb" }, ruleLink(rule, rangeOf(page)), " · key"), h("h1", { class: "key" }, h("bdi", null, report.key.text || "(one counter for all)")), report.known && h("p", { class: "crumb" }, h("bdi", null, report.known)), h("p", { class: "lead" }, answer.why));
    swap(answers, report.answers.map((a) => [h("dt", null, questions[a.question]), h("dd", { "data-q": a.question }, h("bdi", null, said(a.text)))]));
    const started = (report.marks.findLast((m) => m.kind === "start")?.at || 0) / 1000;
    const mine = report.counts.find((c) => c.rule === rule), minutes = (mine?.asked || []).map((units, i) => ({ at: mine.begin + i * 60, units, unknown: mine.begin + i * 60 + 60 <= started })), drawn = within(page, minutes);
    asked.show(lines(page, minutes, null, [{ of: (m) => m.units }]), report.marks);
    swap(rows.inner, table("Units asked for", [["Minute"], ["Units", "n"]], drawn.filter((m) => m.units).reverse().map((m) => [clock(m.at * 1000, false), num(m.units)])));
    swap(marks.inner, happened(report.marks));
    change.hidden = !report.match || !report.states.some((s) => s.rule === rule);
    reset.hidden = !report.states.some((s) => s.rule === rule);
    swap(note, missing(report.instances));
    swap(states, report.states.map((s) => {
      const name = s.rule + "\n" + s.limit;
      let box = boxes.get(name);
      if (!box) boxes.set(name, (box = { root: h("div", { class: "state" }), head: h("div"), rows: twin("As a table") }));
      const used = s.capacity ? (s.capacity - s.remaining) / s.capacity : 1;
      swap(box.head, h("div", { class: "row" }, h("span", null, h("b", null, h("bdi", null, s.rule)), " ", h("span", { class: "key" }, s.limit)), h("span", { class: "chips" }, s.override ? chip("override " + s.override) : s.tier && chip(s.tier === "*" ? "others" : s.tier), s.mode !== "enforce" && chip(s.mode, "shade"), s.source === "local" && chip("this server's share", "warn"), chip(s.algorithm.replaceAll("_", " ")))),
        s.error || s.source === "open" ? h("p", { class: "bad" }, "Not known: " + (s.error || "the store does not answer, and the rule lets requests in uncounted")) : [meter(used, used >= 1 ? "var(--bad-fill)" : used >= 0.8 ? "var(--warn)" : "var(--good-fill)", true), h("div", { class: "row small" }, h("span", null, h("b", null, num(s.remaining)), " of " + num(s.capacity) + " left"), h("span", { class: "soft" }, s.retry_after_ms ? "the next unit in " + duration(s.retry_after_ms) + " · " : "", s.reset_after_ms ? "all free in " + duration(s.reset_after_ms) : "nothing used")), timeline(s)]);
      const frees = s.frees || [];
      let free = s.remaining;
      swap(box.rows.inner, table("When units of " + s.limit + " become free", [["At"], ["In", "n"], ["Units", "n"], ["Free then", "n"]], frees.map((f) => [clock(now + f.after_ms), duration(f.after_ms), num(f.units), num((free += f.units))])));
      box.rows.hidden = !frees.length;
      swap(box.root, box.head, s.needs && h("p", { class: "small" }, "Enough for the last hour: ", h("span", { class: "key" }, s.needs), ". It asked for " + s.asked + "."), box.rows);
      return box.root;
    }), !report.states.length && h("p", { class: "empty" }, "There is nothing that it could use up."), report.instances.length > 1 && h("p", { class: "soft small" }, "Seen from " + report.instances[0].name + ". With a memory store, other instances have counters of their own."));
    const lost = report.counts.some((c) => c.away), shadow = report.counts.some((c) => c.shadow);
    swap(counts, table("Counts by rule", [["Rule"], ["Units", "n"], ["Denials", "n"], lost && ["Without the store", "n"], shadow && ["In shadow", "n"], ["Since", "n"]].filter(Boolean), report.counts.map((c) => [ruleLink(c.rule, rangeOf(page)), count(c.use), h("span", { class: c.denied ? "bad" : "soft" }, count(c.denied)), lost && h("span", { class: c.away ? "warn" : "soft" }, count(c.away)), shadow && h("span", { class: "shade" }, count(c.shadow)), minute((c.denied || c.away || c.use || c.shadow).since)].filter((cell) => cell !== false)), "It is not among the keys with most to do."));
    swap(denials, table("Denials of this key", denialHeads(false), denialRows(report.denials, false), "None is remembered."));
  }
  await page.every(3000, load);
}

const questions = { who: "Who is limited?", rule: "By which rule?", why: "Why?", since: "Since when?", us: "Is it us or the client?", needs: "What would it need?", changed: "What has changed?" };
const count = (c) => (c ? num(c.count) + (c.error ? " ± " + num(c.error) : "") : "–");

// timeline draws from now until all is free how much is free when. The units of a window come
// back one by one, as they were used; those of a bucket all the time.
function timeline(s) {
  if (!s.frees?.length) return null;
  const end = Math.max(1, s.reset_after_ms, s.frees.at(-1).after_ms), steady = s.algorithm.endsWith("bucket"), W = 600, H = 54;
  const x = (ms) => ((ms / end) * W).toFixed(1), y = (units) => (H - (units / s.capacity) * (H - 6)).toFixed(1);
  let free = s.remaining, line = "M0 " + y(free);
  for (const f of s.frees) {
    free += f.units;
    line += steady ? "L" + x(f.after_ms) + " " + y(free) : "H" + x(f.after_ms) + "V" + y(free);
  }
  line += "H" + W;
  const first = s.frees[0], text = num(s.remaining) + " of " + num(s.capacity) + " units are free now, " + num(s.remaining + first.units) + " in " + duration(first.after_ms) + ", all in " + duration(end);
  return h("div", { class: "frees" }, h("div", { class: "freeline", role: "img", "aria-label": text },
    svg("svg", { viewBox: "0 0 " + W + " " + H, preserveAspectRatio: "none", "aria-hidden": "true" }, svg("path", { class: "a", d: line + "V" + H + "H0Z" }), svg("path", { d: line })),
    !steady && s.frees.map((f) => h("i", { vars: { "--x": (100 * f.after_ms) / end + "%" }, title: num(f.units) + (f.units === 1 ? " unit" : " units") + " in " + duration(f.after_ms) }))),
    h("div", { class: "axis" }, h("span", null, "now"), h("span", null, "in " + duration(end / 2)), h("span", null, "in " + duration(end))));
}

// override writes the override that gives this key other limits. It belongs into the policy
// file: what a page set would be gone with the next start, and unknown to the other instances.
function override(report) {
  const limits = h("input", { id: "override-limits", autocomplete: "off", spellcheck: "false" }), until = h("input", { id: "override-until", type: "date" }), text = h("pre", { class: "code", tabindex: "0" }), copy = h("button", { type: "button", class: "main" }, "Copy"), name = h("bdi", { class: "key" }), who = h("bdi", { class: "key" });
  const draw = () => { text.textContent = "    overrides:\n      - match: " + report().match + "\n        limits: [" + limits.value + "]" + (until.value ? "\n        until: " + until.value : ""); copy.textContent = "Copy"; };
  const dialog = h("dialog", { class: "wide", "aria-labelledby": "override-title" }, h("form", { method: "dialog" }, h("h2", { id: "override-title" }, "Other limits for this key"),
    h("p", null, "Limits stand in the policy file and nowhere else: all instances have the same ones, a restart keeps them, and the page Policy shows who was given what. Put this under the rule ", name, "; it takes effect within a second, and ", who, " keeps what it has used."),
    h("div", { class: "row" }, h("label", { for: "override-limits" }, "Limits", limits), h("label", { for: "override-until" }, "Until, in UTC", until)), text, h("div", { class: "row" }, copy, h("button", null, "Close"))));
  for (const field of [limits, until]) field.addEventListener("input", draw);
  copy.addEventListener("click", async () => { try { await navigator.clipboard.writeText(text.textContent + "\n"); copy.textContent = "Copied"; } catch { getSelection().selectAllChildren(text); copy.textContent = "Marked: copy it with the keyboard"; } });
  dialog.ask = () => {
    const r = report();
    if (!r) return;
    name.textContent = r.rule; who.textContent = r.key.text;
    limits.value = r.states.filter((s) => s.rule === r.rule).map((s) => s.limit).join(", ");
    until.value = new Date(Date.now() + 7 * 86400e3).toISOString().slice(0, 10);
    draw(); dialog.showModal();
  };
  return dialog;
}
