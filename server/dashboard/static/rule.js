// One rule: who is denied by it, by which limit, and how full its limits are.
import { h, swap, ask, head, card, lines, table, plot, outcomes, num, percent, all, away, happened, keyLink, link, ranges, rangeOf, rangeMinutes, spanText, long, remembered, missing, minutesTable, twin, meter, minute, chip, ruleLink, clock } from "/lib.js";
export const title = "Rule";

export async function show(page) {
  const rule = page.params.get("rule"), range = rangeOf(page);
  if (!rule) return pick(page, "Which rule?");
  const top = h("div"), note = h("div"), denied = h("div"), limits = h("div"), used = h("div"), users = h("div"), tiers = h("div"), near = h("div"), shadow = h("div"), what = h("div"), lost = h("div");
  const chart = plot(page, "Checks of this rule per minute by outcome", outcomes);
  const rows = twin("As a table"), marks = twin("What happened"), sinces = [h("span"), h("span"), h("span")];
  const lostCard = card("", "Whom the store did not decide", "no answer, let in uncounted, or decided by a share", lost), shadowCard = card("c6", "Denied in shadow", null, shadow), tiersCard = card("", "By tariff", null, tiers);
  swap(page.root, top, note, h("div", { class: "grid" },
    card("c7", "Who is denied", sinces[0], denied),
    h("div", { class: "stack c5" }, card("", "Which limit denies", null, limits), card("", "How full limits are", "after admitted checks", used)),
    lostCard, card("", "Checks per minute", sinces[2], chart, rows, marks),
    card("c7", "Who uses most", sinces[1], users),
    h("div", { class: "stack c5" }, card("", "What if the limit were…", null, what), tiersCard),
    card("c6", "Who comes close", "decisions that left less than a fifth", near), shadowCard));
  const slide = whatIf(what);
  await page.every(long(page) ? 60000 : 5000, async () => {
    const [r, heat, happenings] = await Promise.all([ask("rule", { rule, ...range }, page.signal), ask("clients", { rule, ...range, limit: 50 }, page.signal), ask("marks", range, page.signal)]);
    const p = r.policy, sum = all(r), mine = happenings.marks.filter((m) => m.kind !== "policy" || m.rules?.includes(rule));
    swap(top, h("div", { class: "head" }, h("div", { class: "grow" }, h("p", { class: "crumb" }, "Rule"), h("h1", null, h("bdi", null, rule)),
      h("p", { class: "lead" }, num(r.denied) + " of " + num(sum) + " checks denied (" + percent(r.denied, sum) + ") " + spanText(page, r.since) + ". " + (r.says || "")),
      h("p", { class: "lead" }, r.failed ? h("b", { class: "bad" }, num(r.failed) + " got no answer. ") : null, away(r) ? h("b", { class: "warn" }, num(r.open || 0) + " were let in uncounted, " + num(r.local || 0) + " were decided by a share of the limit. ") : null),
      p ? h("div", { class: "chips" }, p.mode !== "enforce" && chip("mode " + p.mode, "shade"), p.tiers ? p.tiers.map((t) => chip((t.tier === "*" ? "others" : t.tier) + ": " + t.limits.join(", "))) : p.limits.map((l) => chip(l)), p.per.length ? chip("per " + p.per.join(", ")) : chip("one counter for all"), p.match.map((m) => chip("if " + m))) : chip("not in the policy in force", "warn")),
      link("/clients", { rule, ...range }, null, "Heat map"), ranges(page)));
    swap(note, r.does && h("p", { class: "note bad" }, "The store does not answer. The rule " + r.does + "."), missing(r.instances), remembered(r.past));
    lostCard.hidden = !r.away_keys.total;
    swap(lost, keys(rule, r.away_keys, "requests", "--warn"));
    shadowCard.hidden = !r.shadow && p?.mode !== "shadow"; tiersCard.hidden = !p?.tiers;
    sinces[2].textContent = spanText(page, r.since);
    swap(marks.inner, happened(mine));
    chart.show(lines(page, r.minutes, r.past), mine);
    // Keys are counted in steps of ten minutes, so that they may reach back further than minutes.
    sinces[0].textContent = (r.begin ? "since " + clock(r.begin * 1000, false) + "; " : "") + "too high by ± at most";
    sinces[1].textContent = "units" + (r.begin ? " since " + clock(r.begin * 1000, false) : "");
    swap(denied, keys(rule, r.denied_keys, "denials", "--bad-fill"));
    swap(users, keys(rule, r.use, "units", "--good-fill"));
    swap(near, keys(rule, r.near, "times", "--accent"));
    swap(shadow, keys(rule, r.shadow_keys, "denials", "--shade-fill"));
    swap(limits, table("Limits that deny", [["Limit"], ["Denied", "n"], ["In shadow", "n"]], r.limits.map((l) => [h("span", { class: "key" }, l.limit), h("span", { class: l.denied ? "bad" : "soft" }, num(l.denied)), num(l.shadow)]), "None of its limits has denied."));
    swap(tiers, table("Tiers", [["Tier"], ["Limits"], ["Admitted", "n"], ["Denied", "n"]], r.tiers.map((t) => [t.tier ? h("bdi", null, t.tier === "*" ? "all others" : t.tier) : "without a tariff", (p?.tiers || []).find((s) => s.tier === t.tier)?.limits.join(", ") || p?.limits.join(", ") || "", num(t.allowed), h("span", { class: t.denied ? "bad" : "soft" }, num(t.denied))]), "No checks in this time."));
    const most = Math.max(1, ...r.used), fulls = r.used.reduce((a, b) => a + b, 0);
    swap(used, fulls ? [h("div", { class: "bars", role: "img", "aria-label": "How full limits were after admitted checks: " + percent(r.used.slice(16).reduce((a, b) => a + b, 0), fulls) + " above 80 %" },
      r.used.map((n, i) => h("i", { title: i * 5 + "–" + (i * 5 + 5) + " % used: " + num(n), vars: { "--h": (n * 100) / most + "%", "--f": i >= 16 ? "var(--bad-fill)" : "var(--good-fill)" } }))),
      h("div", { class: "axis" }, h("span", null, "empty"), h("span", null, "half used"), h("span", null, "full")), h("p", { class: "soft small" }, percent(r.used.slice(16).reduce((a, b) => a + b, 0), fulls) + " of admitted checks left less than a fifth of their limit.")] : h("p", { class: "empty" }, "Nothing was admitted in this time."));
    swap(rows.inner, minutesTable(page, r.minutes, r.past));
    slide(heat, rangeMinutes(page));
  });
}

// keys shows the keys with the largest counts.
export function keys(rule, top, unit, color) {
  if (!top.keys.length) return h("p", { class: "empty" }, "None.");
  const most = top.keys[0].count || 1, tiers = top.keys.some((k) => k.tier);
  return [table("Keys by " + unit, [["Key"], [unit[0].toUpperCase() + unit.slice(1), "n"], ["±", "n wide-only"], ["Share", "n"], ["", "wide-only meters"], ["Since", "n"], ["Limit used", "n"], tiers && ["Tier"]].filter(Boolean), top.keys.map((k) => [
    [keyLink(rule, k.key, k.tier, unit + color), k.known && h("div", { class: "soft small" }, h("bdi", null, k.known))], num(k.count), h("span", { class: "soft" }, num(k.error)), percent(k.count, top.total), meter(k.count / most, "var(" + color + ")"), minute(k.since), Math.round(k.used / 10) + " %", ...(tiers ? [h("bdi", { class: "soft" }, k.tier === "*" ? "others" : k.tier || "")] : [])])),
    h("p", { class: "soft small" }, top.absent ? "Any other key: at most " + num(top.absent) + " " + unit + "." : "There are no others.")];
}

// whatIf says how many of the busiest keys another limit per minute would deny.
function whatIf(box) {
  const slider = h("input", { type: "range", min: 1, max: 100, value: 60, "aria-label": "Units per minute" }), said = h("p", { "aria-live": "polite" });
  let heat, moved = false;
  const say = () => {
    if (!heat) return;
    const limit = Number(slider.value);
    let keys = 0, units = 0, asked = 0;
    for (const row of heat.rows) { let over = false; row.use.forEach((n, i) => { const wanted = n + row.denied[i]; asked += wanted; if (wanted > limit) { over = true; units += wanted - limit; } }); keys += over; }
    said.replaceChildren("At ", h("b", null, num(limit) + " per minute"), ", ", h("b", { class: keys ? "bad" : "good" }, num(keys) + " of " + num(heat.rows.length)), " of the busiest keys would have been denied at some minute, and " + percent(units, asked) + " of what they asked for.");
  };
  slider.addEventListener("input", () => { moved = true; say(); });
  swap(box, slider, said, h("p", { class: "soft small" }, "An estimate: it counts whole minutes, and knows only the busiest keys of each minute."));
  return (next) => {
    heat = next;
    const most = Math.max(2, ...heat.rows.flatMap((r) => r.use.map((n, i) => n + r.denied[i])));
    slider.max = most;
    if (!moved) slider.value = Math.ceil(most / 2);
    say();
  };
}

// pick lets people choose a rule.
async function pick(page, question) {
  const list = h("div");
  swap(page.root, head(question), h("div", { class: "grid" }, card("c8", "Rules in use", "most denials first", list)));
  await page.guard(async () => {
    const now = await ask("now", { range: "120m", limit: 500 }, page.signal);
    swap(list, table("Rules", [["Rule"], ["Denied", "n"], ["Admitted", "n"]], now.rules.map((r) => [ruleLink(r.rule), num(r.denied), num(r.allowed)]), "No rule was used in the last two hours."));
  });
}
