// One rule: who is denied by it, by which limit, and how full its limits are.
import { h, swap, ask, head, card, lines, table, plot, num, percent, keyLink, link, ranges, rangeMinutes, missing, minutesTable, twin, meter, chip, ruleLink, clock } from "/lib.js";
export const title = "Rule";

export async function show(page) {
  const rule = page.params.get("rule"), range = page.params.get("range") || "10m0s";
  if (!rule) return pick(page, "Which rule?", "/rule");
  const top = h("div"), note = h("div"), denied = h("div"), limits = h("div"), used = h("div"), users = h("div"), tiers = h("div"), near = h("div"), shadow = h("div"), what = h("div");
  const chart = plot(page, "Checks of this rule per minute", [{ label: "Admitted", color: "--good-fill" }, { label: "Denied", color: "--bad-fill", fill: true }, { label: "In shadow", color: "--shade-fill", dash: [4, 4] }]);
  const rows = twin("As a table"), sinces = [h("span"), h("span")];
  swap(page.root, top, note, h("div", { class: "grid" },
    card("c7", "Who is denied", sinces[0], denied),
    h("div", { class: "stack c5" }, card("", "Which limit denies", null, limits), card("", "How full limits are", "after admitted checks", used)),
    card("", "Checks per minute", null, chart, rows),
    card("c7", "Who uses most", sinces[1], users),
    h("div", { class: "stack c5" }, card("", "What if the limit were…", null, what), card("", "By tariff", null, tiers)),
    card("c6", "Who comes close", "decisions that left less than a fifth", near), card("c6", "Denied in shadow", null, shadow)));
  const slide = whatIf(what);
  await page.every(5000, async () => {
    const [r, heat] = await Promise.all([ask("rule", { rule, range }, page.signal), ask("clients", { rule, range, limit: 50 }, page.signal)]);
    const p = r.policy, all = r.allowed + r.denied + (r.uncharged || 0);
    swap(top, h("div", { class: "head" }, h("div", { class: "grow" }, h("p", { class: "crumb" }, "Rule"), h("h1", null, h("bdi", null, rule)),
      h("p", { class: "lead" }, num(r.denied) + " of " + num(all) + " checks denied (" + percent(r.denied, all) + ")" + (r.denied_keys.keys.length ? (r.denied_keys.keys[0].count * 2 > r.denied_keys.total ? ", most of them to one key" : "") : "") + "."),
      p ? h("div", { class: "chips" }, p.mode !== "enforce" && chip("mode " + p.mode, "shade"), p.limits.map((l) => chip(l)), p.per.length ? chip("per " + p.per.join(", ")) : chip("one counter for all"), p.match.length > 0 && chip("matches by " + p.match.join(", "))) : chip("not in the policy in force", "warn")),
      link("/clients", { rule, range }, null, "Heat map"), ranges(page)));
    swap(note, missing(r.instances));
    // Keys are counted in steps of ten minutes, so that they may reach back further than minutes.
    sinces[0].textContent = (r.begin ? "since " + clock(r.begin * 1000, false) + "; " : "") + "too high by ± at most";
    sinces[1].textContent = "units" + (r.begin ? " since " + clock(r.begin * 1000, false) : "");
    swap(denied, keys(rule, r.denied_keys, "denials", "--bad-fill"));
    swap(users, keys(rule, r.use, "units", "--good-fill"));
    swap(near, keys(rule, r.near, "times", "--accent"));
    swap(shadow, keys(rule, r.shadow_keys, "denials", "--shade-fill"));
    swap(limits, table("Limits that deny", [["Limit"], ["Denied", "n"], ["In shadow", "n"]], r.limits.map((l) => [h("span", { class: "key" }, l.limit), h("span", { class: l.denied ? "bad" : "soft" }, num(l.denied)), num(l.shadow)]), "None of its limits has denied."));
    swap(tiers, table("Tiers", [["Tier"], ["Limits"], ["Admitted", "n"], ["Denied", "n"]], r.tiers.map((t) => [t.tier ? h("bdi", null, t.tier === "*" ? "all others" : t.tier) : "without a tariff", (p?.tiers || []).find((s) => s.tier === t.tier)?.limits.join(", ") || p?.limits.join(", ") || "", num(t.allowed), h("span", { class: t.denied ? "bad" : "soft" }, num(t.denied))]), "No checks in this time."));
    const most = Math.max(1, ...r.used), sum = r.used.reduce((a, b) => a + b, 0);
    swap(used, sum ? [h("div", { class: "bars", role: "img", "aria-label": "How full limits were after admitted checks: " + percent(r.used.slice(16).reduce((a, b) => a + b, 0), sum) + " above 80 %" },
      r.used.map((n, i) => h("i", { title: i * 5 + "–" + (i * 5 + 5) + " % used: " + num(n), vars: { "--h": (n * 100) / most + "%", "--f": i >= 16 ? "var(--bad-fill)" : "var(--good-fill)" } }))),
      h("div", { class: "axis" }, h("span", null, "empty"), h("span", null, "half used"), h("span", null, "full")), h("p", { class: "soft small" }, percent(r.used.slice(16).reduce((a, b) => a + b, 0), sum) + " of admitted checks left less than a fifth of their limit.")] : h("p", { class: "empty" }, "Nothing was admitted in this time."));
    chart.show(lines(r.minutes, Infinity));
    swap(rows.inner, minutesTable(r.minutes));
    slide(heat, rangeMinutes(range));
  });
}

// keys shows the keys with the largest counts.
export function keys(rule, top, unit, color) {
  if (!top.keys.length) return h("p", { class: "empty" }, "None.");
  const most = top.keys[0].count || 1, tiers = top.keys.some((k) => k.tier);
  return [table("Keys by " + unit, [["Key"], [unit[0].toUpperCase() + unit.slice(1), "n"], ["±", "n"], ["Share", "n"], ["", "wide-only"], ["Limit used", "n"], tiers && ["Tier"]].filter(Boolean), top.keys.slice(0, 12).map((k) => [
    keyLink(rule, k.key, k.tier, unit + color), num(k.count), h("span", { class: "soft" }, num(k.error)), percent(k.count, top.total), meter(k.count / most, "var(" + color + ")"), Math.round(k.used / 10) + " %", ...(tiers ? [h("bdi", { class: "soft" }, k.tier === "*" ? "others" : k.tier || "")] : [])])),
    h("p", { class: "soft small" }, top.keys.length > 12 || top.absent ? "Any other key: at most " + num(Math.max(top.absent, top.keys[12]?.count || 0)) + " " + unit + "." : "There are no others.")];
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
  swap(box, slider, said, h("p", { class: "soft small" }, "An estimate: it counts whole minutes, takes every denial for one unit, and knows only the busiest keys of each minute."));
  return (next) => {
    heat = next;
    const most = Math.max(2, ...heat.rows.flatMap((r) => r.use.map((n, i) => n + r.denied[i])));
    slider.max = most;
    if (!moved) slider.value = Math.ceil(most / 2);
    say();
  };
}

// pick lets people choose a rule.
export async function pick(page, question, path) {
  const list = h("div");
  swap(page.root, head(question), h("div", { class: "grid" }, card("c8", "Rules in use", "most denials first", list)));
  await page.guard(async () => {
    const now = await ask("now", { range: "2h0m0s", limit: 200 }, page.signal);
    swap(list, table("Rules", [["Rule"], ["Denied", "n"], ["Admitted", "n"]], now.rules.map((r) => [path === "/rule" ? ruleLink(r.rule) : link(path, { rule: r.rule }, null, h("bdi", null, r.rule)), num(r.denied), num(r.allowed)]), "No rule was used in the last two hours."));
  });
}
