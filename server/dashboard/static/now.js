// How it is now, and which rules to look at first.
import { h, swap, ask, head, card, lines, table, plot, spark, num, rate, percent, ruleLink, ranges, rangeMinutes, missing, minutesTable, twin } from "/lib.js";
export const title = "Now";

export async function show(page) {
  const range = page.params.get("range") || "10m0s", n = rangeMinutes(range);
  const lead = h("p", { class: "lead" }), note = h("div"), rules = h("div"), doors = h("div");
  const figures = ["good", "bad", "shade"].map((kind) => { const b = h("b", null, "–"), s = h("span"), all = h("span"); return { b, s, all, box: h("div", { class: "card c3 figure " + kind }, b, s, all) }; });
  const share = { b: h("b", null, "–"), s: h("span", null, "of requests denied"), all: h("span") };
  const chart = plot(page, "Requests per minute in the last two hours: admitted, denied, denied in shadow", [
    { label: "Admitted", color: "--good-fill" }, { label: "Denied", color: "--bad-fill", fill: true }, { label: "In shadow", color: "--shade-fill", dash: [4, 4] }]);
  const rows = twin("As a table");
  swap(page.root, head("Now", null, ranges(page)), lead, note, h("div", { class: "grid" },
    figures.map((f) => f.box), h("div", { class: "card c3 figure" }, share.b, share.s, share.all),
    card("", "Requests per minute", "the last two hours; the minute that is running is left out", chart, rows),
    card("c8", "Rules to look at first", "most denials first", rules), card("c4", "Where requests come from", null, doors)));
  page.root.querySelector(".head .grow").append(lead);
  await page.every(5000, async () => {
    const now = await ask("now", { range, limit: 25 }, page.signal);
    swap(note, missing(now.instances));
    chart.show(lines(now.minutes, now.since));
    swap(rows.inner, minutesTable(now.minutes));
    const sum = now.doors.reduce((a, d) => ({ allowed: a.allowed + d.allowed, denied: a.denied + d.denied, shadow: a.shadow + d.shadow }), { allowed: 0, denied: 0, shadow: 0 });
    const per = Math.max(1, Math.min(n * 60, (now.now - now.since) / 1000)), all = sum.allowed + sum.denied;
    for (const [i, [value, text]] of [[sum.allowed, "admitted per second"], [sum.denied, "denied per second"], [sum.shadow, "in shadow per second"]].entries()) {
      figures[i].b.textContent = rate(value / per);
      figures[i].s.textContent = text;
      figures[i].all.textContent = num(value) + " in all";
    }
    share.b.textContent = percent(sum.denied, all);
    share.all.textContent = num(all) + " in all";
    const worst = now.rules.find((r) => r.denied > 0);
    lead.textContent = !all ? "No requests in this time." : !worst ? "Nobody is denied." : "Most denials come from the rule " + worst.rule + ": " + num(worst.denied) + " of its " + num(worst.allowed + worst.denied + (worst.uncharged || 0)) + " checks.";
    swap(rules, table("Rules", [["Rule"], ["Denied", "n"], ["Change", "n"], ["In shadow", "n"], ["Admitted", "n"], ["Last half hour", "wide-only"]], now.rules.map((r) => [
      ruleLink(r.rule, range), h("span", { class: r.denied ? "bad" : "soft" }, num(r.denied)), change(r), h("span", { class: r.shadow ? "shade" : "soft" }, num(r.shadow)), num(r.allowed), spark(r.spark)]), "No rule was used in this time."),
      now.all_rules > now.rules.length && h("p", { class: "soft small" }, num(now.all_rules - now.rules.length) + " more rules were used."),
      now.left_out.decisions > 0 && h("p", { class: "note" }, num(now.left_out.decisions) + " checks are of rules that there was no memory to follow."));
    swap(doors, table("Doors", [["Door"], ["Admitted", "n"], ["Denied", "n"]], now.doors.map((d) => [d.door || "library", num(d.allowed), num(d.denied)]), "No requests in this time."));
  });
}

// change compares denials with those in as much time before.
function change(r) {
  const was = r.before.denied + r.before.shadow, is = r.denied + r.shadow;
  if (was === is) return h("span", { class: "soft" }, "same");
  if (!was) return h("span", { class: "bad" }, "new");
  if (is > was) return h("span", { class: "bad", title: num(was) + " before" }, "↑ × " + times(is / was));
  return h("span", { class: "good", title: num(was) + " before" }, is ? "↓ ÷ " + times(was / is) : "none now");
}
const times = (n) => (n < 10 ? n.toFixed(1) : num(n));
