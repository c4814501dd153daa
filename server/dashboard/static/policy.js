// What is in force, what has changed, and what is being tried.
import { h, swap, ask, head, card, table, num, percent, day, ruleLink, missing, chip } from "/lib.js";
export const title = "Policy";

export async function show(page) {
  const top = h("div"), note = h("div"), rules = h("div"), changes = h("div"), tried = h("div"), instances = h("div");
  swap(page.root, top, note, h("div", { class: "grid" }, card("c7", "Changes", "the newest first", changes), card("c5", "Instances", null, instances), card("", "Candidate", null, tried), card("", "Rules in force", null, rules)));
  await page.every(10000, async () => {
    const p = await ask("policy", {}, page.signal);
    swap(top, head("Policy", ["Version " + num(p.version) + " is in force: " + num(p.all_rules) + " rules, hash ", h("span", { class: "key" }, p.hash.slice(0, 12)), "."]));
    swap(note, missing(p.instances));
    swap(changes, table("Changes", [["When"], ["Version", "n"], ["Because"], ["What"]], p.changes.map((c) => [day(c.at), num(c.version), c.because, c.failed ? h("span", { class: "bad" }, "Not taken: " + c.failed) : differs(c)]), "None since the start."));
    swap(instances, table("Instances", [["Instance"], ["Version", "n"], ["Hash"]], p.instances.map((i) => [h("bdi", null, i.name), i.ok ? num(i.version) : "–", i.ok ? h("span", { class: "key " + (i.hash === p.hash ? "" : "warn") }, i.hash.slice(0, 12)) : h("span", { class: "bad" }, i.error)])));
    swap(tried, candidate(p.candidate));
    swap(rules, table("Rules", [["Rule"], ["Limits"], ["Per"], ["Matches by"], ["Mode"], ["Place"]], p.rules.map((r) => [ruleLink(r.rule), h("span", { class: "key" }, r.tiers ? r.tiers.map((t) => (t.tier === "*" ? "others" : t.tier) + ": " + t.limits.join(", ")).join("; ") : r.limits.join(", ")), r.per.join(", ") || "one for all", r.match.join(", ") || "every request", r.mode === "enforce" ? r.mode : chip(r.mode, "shade"), h("span", { class: "soft small" }, r.place || "")])),
      p.all_rules > p.rules.length && h("p", { class: "soft small" }, num(p.all_rules - p.rules.length) + " more are not shown."));
  });
}

function differs(c) {
  const parts = [];
  for (const r of c.changed || []) parts.push(h("div", null, h("bdi", null, r.rule), ": ", h("s", { class: "soft" }, r.before), " → ", h("b", null, r.after)));
  if (c.added) parts.push(h("div", { class: "good" }, "added " + c.added.join(", ")));
  if (c.removed) parts.push(h("div", { class: "bad" }, "removed " + c.removed.join(", ")));
  return parts.length ? parts : h("span", { class: "soft" }, c.because === "the start" ? "as it was at the start" : "nothing that rules say");
}

function candidate(c) {
  if (!c) return h("p", { class: "empty" }, "None is being tried. With --candidate FILE, every decision is compared with what that file would decide.");
  if (!c.candidate) return h("p", { class: "bad" }, "Its file was never without mistakes.");
  return [h("p", null, num(c.compared) + " requests compared since " + day(Date.parse(c.since)) + "; " + num(c.newly_denied) + " would be newly denied (" + percent(c.newly_denied, c.compared) + "), " + num(c.newly_admitted) + " newly admitted."),
    c.failed && h("p", { class: "bad" }, c.failed.detail),
    table("Differences by rule", [["Decided by"], ["Newly denied", "n"], ["Newly admitted", "n"]], (c.rules || []).map((r) => [h("bdi", null, r.rule || "deny list: " + r.list), h("span", { class: r.newly_denied ? "bad" : "soft" }, num(r.newly_denied)), h("span", { class: r.newly_admitted ? "good" : "soft" }, num(r.newly_admitted))]), "It decides as the policy in force does.")];
}
