// Clients of all rules: those that are limited most, or one that is looked for. Of one rule: the
// busiest keys, minute by minute.
import { h, swap, ask, send, head, card, table, color, chip, clock, day, meter, num, plural, keyLink, ruleLink, link, ranges, rangeOf, missing, twin, finder, clientsTable, keysText } from "/lib.js";
export const title = "Clients";
const ROW = 24;

async function overall(page) {
  const q = history.state?.q || "", range = rangeOf(page), note = h("div"), list = h("div"), lists = h("div");
  const models = h("div"), budgets = h("div"), spenders = h("div"), spending = [card("", "Budgets", "of calendar periods", budgets), card("", "Spent most", "by key and model", spenders), card("", "Models", null, models)];
  for (const c of spending) c.hidden = true;
  const top = head("Clients", q ? "What is known of the client, by rule." : "Those that are limited most, of all rules.", finder(page, q), ranges(page));
  swap(page.root, top, note, h("div", { class: "grid" }, card("", q ? "Found" : "Limited most", q ? "in the last two hours" : keysText(page), lists, list), spending));
  await page.every(5000, async () => {
    const found = await send("POST", "/api/find?" + new URLSearchParams({ range: range.range, ...(range.until && { until: range.until }), limit: 200 }), { q });
    swap(note, missing(found.instances));
    swap(lists, found.lists.map((l) => h("p", { class: "note" }, "It is on the " + l + ".")));
    swap(list, clientsTable(found.clients, q ? "No rule has counted such a client lately, and none would count it by this alone." : "Nobody is limited in this time."), found.more && h("p", { class: "soft small" }, "There are more."));
    const s = await ask("spent", { limit: 50 }, page.signal);
    for (const c of spending) c.hidden = !s.counts;
    if (s.counts) spent(s, budgets, spenders, models);
  });
}

// spent shows what calls to language models have spent, and what is left of budgets.
function spent(s, budgets, spenders, models) {
  const amount = (counts, units) => counts === "money" ? money(units * s.money_unit) : num(units) + " " + counts.replaceAll("_", " "), left = (b) => b.remaining / b.capacity;
  const who = (x) => [keyLink(x.rule, x.key, "", "spent:"), x.known && h("span", { class: "soft small" }, " ", h("bdi", null, x.known))];
  const columns = [["Calls", "n"], ["Input tokens", "n"], ["Output tokens", "n"], ["Money", "n"]], cells = (x) => [[num(x.calls), x.estimated > 0 && h("span", { class: "soft small" }, " · " + num(x.estimated) + " estimated")], num(x.input_tokens), num(x.output_tokens), money(x.micros)];
  const since = h("p", { class: "soft small" }, "As providers have stated it, since " + day(s.since) + ". A call without such a statement is charged by an estimate. A call counts under each rule that counts it.", s.dropped > 0 && " " + plural(s.dropped, "key") + " that had spent least were forgotten.");
  swap(budgets, table("Budgets", [["Rule"], ["Key"], ["Left", "n"], ["Limit"], ["At this pace"], ["Begins anew"]], s.budgets.map((b) => [ruleLink(b.rule), who(b), [amount(b.counts, b.remaining), " ", meter(left(b), left(b) < 0.1 ? "var(--bad-fill)" : undefined)], h("span", { class: "nowrap" }, b.counts === "money" ? money(b.capacity * s.money_unit) + b.limit.replace(/^\S+/, "") : b.limit),
    b.remaining <= 0 ? chip("spent", "bad") : b.spent_at ? chip("spent " + day(b.spent_at).slice(0, 16), "warn") : "lasts", h("span", { class: "nowrap" }, day(b.ends).slice(0, 16))]), "No key has used a budget yet. Budgets are limits on tokens or money of calendar periods, such as a month."));
  swap(spenders, table("Spent most", [["Rule"], ["Key"], ["Model"], ...columns, ["Charged", "n"]], s.spenders.map((x) => [ruleLink(x.rule), who(x), h("bdi", null, x.model), ...cells(x), amount(x.counts, x.charged)]), "No call has ended yet."), s.spenders.length > 0 && since);
  swap(models, table("Models", [["Model"], ...columns], s.models.map((x) => [h("bdi", null, x.model), ...cells(x)]), "No call has ended yet."));
}
// money is in the policy's currency, which has no name there.
const money = (micros) => (micros / 1e6).toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: micros && Math.abs(micros) < 1e5 ? 6 : 2 });

// trim leaves out minutes before anything was counted, but for the last ten.
function trim(heat) {
  const n = heat.rows[0]?.use.length || 0;
  let first = 0;
  while (first < n - 10 && heat.rows.every((r) => !r.use[first] && !r.denied[first])) first++;
  for (const r of heat.rows) { r.use = r.use.slice(first); r.denied = r.denied.slice(first); }
  heat.begin += first * 60;
}

export async function show(page) {
  const rule = page.params.get("rule"), range = rangeOf(page);
  if (!rule) return overall(page);
  const note = h("div"), names = h("div", { class: "names" }), read = h("p", { class: "read", "aria-live": "polite" }), axis = h("div", { class: "axis" });
  const canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": "Heat map: keys by minutes. Arrow keys move, Enter opens the key." });
  const filter = h("select", { "aria-label": "Tier" }, h("option", { value: "" }, "All tiers"));
  const rows = twin("As a table");
  let heat, shown = [], at = [0, 0], focused = false;
  swap(page.root, h("div", { class: "head" }, h("div", { class: "grow" }, h("p", { class: "crumb" }, link("/rule", { rule, ...range }, null, h("bdi", null, rule))), h("h1", null, "Clients"), h("p", { class: "lead" }, "The keys that had most to do, minute by minute, " + keysText(page) + ".")), filter, ranges(page)), note,
    h("div", { class: "grid" }, card("", "Keys by minutes", null, h("div", { class: "legend" }, h("span", null, h("i", { vars: { "--f": "var(--heat-1)" } }), "only admitted"), h("span", null, h("i", { vars: { "--f": "var(--heat-2)" } }), "denied, too"), h("span", null, "the fuller the colour, the more units")),
      h("div", { class: "heat" }, names, canvas, axis, read), rows)));

  const draw = () => {
    const n = heat?.rows[0]?.use.length || 0, width = canvas.clientWidth, dense = devicePixelRatio || 1;
    canvas.style.height = Math.max(ROW, shown.length * ROW) + "px";
    canvas.width = width * dense; canvas.height = Math.max(ROW, shown.length * ROW) * dense;
    const g = canvas.getContext("2d");
    g.scale(dense, dense);
    const cell = width / Math.max(1, n), most = Math.max(1, ...shown.flatMap((r) => r.use.map((u, i) => u + r.denied[i])));
    const [empty, calm, hot, ink] = ["--heat-0", "--heat-1", "--heat-2", "--ink"].map(color);
    shown.forEach((row, y) => row.use.forEach((u, x) => {
      const d = row.denied[x], gap = cell > 4 ? 1 : 0;
      g.globalAlpha = 1; g.fillStyle = empty; g.fillRect(x * cell, y * ROW + 2, cell - gap, ROW - 4);
      if (u + d === 0) return;
      g.globalAlpha = 0.28 + 0.72 * Math.sqrt((u + d) / most);
      g.fillStyle = d ? hot : calm; g.fillRect(x * cell, y * ROW + 2, cell - gap, ROW - 4);
    }));
    g.globalAlpha = 1;
    if (focused && shown.length) { g.strokeStyle = ink; g.lineWidth = 2; g.strokeRect(at[0] * cell, at[1] * ROW + 2, Math.max(3, cell), ROW - 4); }
  };
  const say = () => {
    const row = shown[at[1]];
    if (!row) return;
    swap(read, h("bdi", { class: "key" }, row.key.text || "(one counter for all)"), " at " + clock((heat.begin + at[0] * 60) * 1000, false) + ": ", h("b", null, num(row.use[at[0]])), " units admitted, ", h("b", { class: row.denied[at[0]] ? "bad" : "" }, num(row.denied[at[0]])), " denied");
  };
  const move = (x, y) => { const n = heat?.rows[0]?.use.length || 1; at = [Math.max(0, Math.min(n - 1, x)), Math.max(0, Math.min(shown.length - 1, y))]; focused = true; say(); draw(); };
  const open = () => names.querySelectorAll("a")[at[1]]?.click();
  canvas.addEventListener("pointermove", (e) => { const b = canvas.getBoundingClientRect(); move(Math.floor(((e.clientX - b.left) / b.width) * (heat?.rows[0]?.use.length || 1)), Math.floor((e.clientY - b.top) / ROW)); });
  canvas.addEventListener("click", open);
  canvas.addEventListener("keydown", (e) => {
    const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[e.key];
    if (by) { e.preventDefault(); move(at[0] + by[0], at[1] + by[1]); } else if (e.key === "Enter") open();
  });
  const observer = new ResizeObserver(draw);
  observer.observe(canvas);
  page.leave(() => observer.disconnect());
  page.themed(draw);
  const fill = () => {
    const tiers = [...new Set(heat.rows.map((r) => r.tier || ""))].sort(), chosen = filter.value;
    filter.hidden = tiers.length < 2;
    swap(filter, h("option", { value: "" }, "All tiers"), tiers.map((t) => h("option", { value: "t" + t }, t === "*" ? "all others" : t || "without a tariff")));
    filter.value = chosen;
    shown = heat.rows.filter((r) => !filter.value || filter.value === "t" + (r.tier || ""));
    swap(names, shown.length ? shown.map((r) => keyLink(rule, r.key, r.tier, "heat")) : h("p", { class: "empty" }, "No key in this time."));
    const n = heat.rows[0]?.use.length || 0;
    swap(axis, n > 0 && [0, 0.5, 1].map((p) => h("span", null, clock((heat.begin + Math.round(p * (n - 1)) * 60) * 1000, false))));
    const sum = (list) => list.reduce((a, b) => a + b, 0);
    swap(rows.inner, table("Keys", [["Key"], ["Tier"], ["Units admitted", "n"], ["Units denied", "n"], ["Busiest minute", "n"]], shown.map((r) => {
      const both = r.use.map((u, i) => u + r.denied[i]), most = Math.max(...both);
      return [[keyLink(rule, r.key, r.tier, "row"), r.known && h("div", { class: "soft small" }, h("bdi", null, r.known))], h("bdi", null, r.tier === "*" ? "others" : r.tier || ""), num(sum(r.use)), num(sum(r.denied)), num(most) + " at " + clock((heat.begin + both.indexOf(most) * 60) * 1000, false)];
    })));
    draw();
  };
  filter.addEventListener("change", fill);
  await page.every(10000, async () => {
    heat = await ask("clients", { rule, ...range, limit: 30 }, page.signal);
    swap(note, missing(heat.instances));
    trim(heat);
    fill();
  });
}
