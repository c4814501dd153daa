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
    swap(changes, table("Changes", [["When"], ["Version", "n"], ["Because"], ["What"]], p.changes.map((c) => [day(c.at), num(c.version), c.because, c.failed ? [h("span", { class: "bad" }, "Not taken: " + c.failed), c.mistakes && h("ul", { class: "small" }, c.mistakes.map((m) => h("li", null, h("bdi", { class: "key" }, m))))] : differs(c)]), "None since the start."));
    swap(instances, table("Instances", [["Instance"], ["Version", "n"], ["Hash"]], p.instances.map((i) => [h("bdi", null, i.name), i.ok ? num(i.version) : "–", i.ok ? h("span", { class: "key " + (i.hash === p.hash ? "" : "warn") }, i.hash.slice(0, 12)) : h("span", { class: "bad" }, i.error)])));
    swap(tried, candidate(p.candidate, p.instances, p.candidate_elsewhere || []));
    swap(rules, table("Rules", [["Rule"], ["Limits"], ["Per"], ["Matches if"], ["Mode"], ["Place"]], p.rules.map((r) => [ruleLink(r.rule), h("span", { class: "key" }, r.tiers ? r.tiers.map((t) => (t.tier === "*" ? "others" : t.tier) + ": " + t.limits.join(", ")).join("; ") : r.limits.join(", ")), r.per.join(", ") || "one for all", r.match.join(" and ") || "every request", r.mode === "enforce" ? r.mode : chip(r.mode, "shade"), h("span", { class: "soft small" }, r.place || "")])),
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

function candidate(c, instances, elsewhere) {
  if (!c) return h("p", { class: "empty" }, "None is being tried. With --candidate FILE, every decision is compared with what that file would decide.");
  const failed = c.failed && [h("p", { class: "bad" }, c.failed.detail), h("ul", { class: "small" }, (c.failed.mistakes || []).map((m) => h("li", null, h("bdi", { class: "key" }, m))))];
  if (!c.candidate) return [h("p", { class: "bad" }, "Its file was never without mistakes."), failed];
  const keys = (title, list) => h("div", null, h("h3", null, title), table(title, [["Client"], ["Decided by"], ["Times", "n"]], (list || []).map((k) => [h("bdi", { class: "key" }, k.key || "(one counter for all)"), h("bdi", null, k.rule || "deny list: " + k.list), num(k.count) + (k.over ? " ± " + num(k.over) : "")]), "None."));
  const here = instances.filter((i) => i.ok && !elsewhere.includes(i.name)).map((i) => i.name);
  return [instances.length > 1 && h("p", null, "Of " + here.join(", ") + ".", elsewhere.length > 0 && h("span", { class: "warn" }, " Not of " + elsewhere.join(", ") + ": another candidate or policy, or none.")),
    h("p", null, num(c.compared) + " requests compared since " + day(Date.parse(c.since)) + "; " + num(c.newly_denied) + " would be newly denied (" + percent(c.newly_denied, c.compared) + "), " + num(c.newly_admitted) + " newly admitted."),
    h("p", { class: "note" }, "Its counters began empty at " + day(Date.parse(c.counting_since)) + (here.length > 1 ? " at the latest" : "") + (c.since !== c.counting_since ? ", and the figures begin later" : "") + ". Until the longest period of its limits has passed, it denies less than it would."),
    failed,
    table("Differences by rule", [["Decided by"], ["Newly denied", "n"], ["Newly admitted", "n"]], (c.rules || []).map((r) => [h("bdi", null, r.rule || "deny list: " + r.list), h("span", { class: r.newly_denied ? "bad" : "soft" }, num(r.newly_denied)), h("span", { class: r.newly_admitted ? "good" : "soft" }, num(r.newly_admitted))]), "It decides as the policy in force does."),
    h("div", { class: "groups" }, keys("Clients newly denied", c.top_newly_denied), keys("Clients newly admitted", c.top_newly_admitted))];
}
