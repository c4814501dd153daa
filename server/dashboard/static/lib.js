// What all pages use: elements, numbers as text, questions to the server, plots.

// h makes an element. Texts become text, never markup.
export function h(tag, props, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (name === "class") e.className = value;
    else if (name === "vars") for (const [v, to] of Object.entries(value)) e.style.setProperty(v, to);
    else e.setAttribute(name, value === true ? "" : String(value));
  }
  e.append(...children.flat(4).filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}

// swap shows other children, and keeps the focus on the one that has the same name. What is pressed
// stays until it is let go: a browser makes a click only of an element that was there all the time,
// and a page of denials may change twenty times a second.
export function swap(into, ...children) {
  if (pressed && into.contains(pressed)) { later.set(into, children); return; }
  const name = into.contains(document.activeElement) ? document.activeElement.dataset.f : undefined;
  const at = into.querySelector(".scroll")?.scrollLeft;
  into.replaceChildren(...children.flat(4).filter(Boolean));
  if (at) into.querySelector(".scroll").scrollLeft = at;
  if (name) for (const e of into.querySelectorAll("[data-f]")) if (e.dataset.f === name) { e.focus({ preventScroll: true }); break; }
}
let pressed = null;
const later = new Map();
// The click comes after the pointer is up, and before timers.
const letGo = () => setTimeout(() => { pressed = null; for (const [into, children] of later) { later.delete(into); swap(into, ...children); } });
addEventListener("pointerdown", (e) => { if (!e.button) pressed = e.target; }, true);
for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, letGo);

const whole = new Intl.NumberFormat("en-US");
export const num = (n) => whole.format(Math.round(n));
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 2 });
const tick = (n) => (n < 1e6 ? num(n) : short.format(n));
export function rate(n) { return n >= 100 ? num(n) : n >= 10 ? n.toFixed(1) : n.toFixed(2); }
export function percent(part, all) {
  if (!all) return "0 %";
  const p = (100 * part) / all;
  return (p > 0 && p < 0.1 ? "< 0.1" : p >= 99.95 && p < 100 ? "99.9" : p.toFixed(1)) + " %";
}
export function duration(ms) {
  if (ms < 0) return "never";
  if (ms < 1000) return Math.ceil(ms) + " ms";
  if (ms < 10000) return (Math.ceil(ms / 100) / 10).toFixed(1) + " s";
  // Rounded up as a whole, so that nothing is 59 min 60 s.
  const s = Math.ceil(ms / 1000), m = Math.ceil(s / 60);
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + (s % 60) + " s";
  if (m < 1440) return Math.floor(m / 60) + " h " + (m % 60) + " min";
  return (s / 86400).toFixed(1) + " days";
}
export function micros(us) { return us < 1000 ? num(us) + " µs" : us < 1e6 ? (us / 1000).toFixed(us < 1e4 ? 2 : 1) + " ms" : (us / 1e6).toFixed(2) + " s"; }
const pad = (n) => String(n).padStart(2, "0");
export function clock(ms, seconds = true) { const d = new Date(ms); return pad(d.getHours()) + ":" + pad(d.getMinutes()) + (seconds ? ":" + pad(d.getSeconds()) : ""); }
export function day(ms) { const d = new Date(ms); return d.getFullYear() + "-" + pad(d.getMonth() + 1) + "-" + pad(d.getDate()) + " " + clock(ms); }
export const plural = (n, word) => num(n) + " " + word + (n === 1 ? "" : "s");

// SignedOut says that the server wants to see the token.
export class SignedOut extends Error {}

// ask asks the server.
export async function ask(path, params = {}, signal) {
  const query = new URLSearchParams(Object.entries(params).filter(([, v]) => v !== undefined && v !== null && v !== ""));
  const limit = AbortSignal.timeout(10000);
  const response = await fetch("/api/" + path + "?" + query, { signal: signal ? AbortSignal.any([signal, limit]) : limit });
  return read(response);
}
export async function send(method, path, body) {
  return read(await fetch(path, { method, headers: { "content-type": "application/json" }, body: body && JSON.stringify(body) }));
}
async function read(response) {
  if (response.status === 204) return null;
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  if (response.status === 401) throw new SignedOut(answer.detail);
  const e = new Error(answer.detail || "the server answers with status " + response.status);
  e.status = response.status;
  throw e;
}

// link leads to another page without loading everything anew.
export function link(path, params, props, ...children) {
  const query = new URLSearchParams(Object.entries(params || {}).filter(([, v]) => v)).toString();
  return h("a", { href: path + (query ? "?" + query : ""), "data-link": true, ...props }, ...children);
}
export function ruleLink(rule, range) { return link("/rule", { rule, ...range }, { "data-f": "rule:" + rule }, h("bdi", null, rule)); }
export function keyLink(rule, key, tier, f = "") {
  return link("/key", { rule, key: key.id, tier }, { class: "key", "data-f": f + key.id, title: key.cut ? "The beginning of a longer key" : undefined }, h("bdi", null, key.text || "(one counter for all)"));
}
export function meter(part, color, wide) {
  return h("span", { class: "meter" + (wide ? " wide" : ""), "aria-hidden": "true", vars: { "--w": Math.max(0, Math.min(100, part * 100)) + "%", "--f": color || "var(--accent)" } }, h("i"));
}
export function chip(text, kind) { return h("span", { class: "chip " + (kind || "") }, text); }

// table makes a table: heads are [text, class], rows are lists of cells. A long one has pages, and
// stays on its page when it is made anew.
const ROWS = 25, turned = new Map();
export function table(caption, heads, rows, empty) {
  if (!rows.length) return h("p", { class: "empty" }, empty || "Nothing yet.");
  const name = location.pathname + caption, box = h("div"), pages = Math.ceil(rows.length / ROWS);
  const draw = () => {
    const at = Math.min(turned.get(name) || 0, pages - 1), turn = (by, text) => h("button", { type: "button", "data-f": text + caption, disabled: at + by < 0 || at + by >= pages, onclick: () => { turned.set(name, at + by); draw(); } }, text);
    swap(box, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      h("table", null, h("caption", { class: "hidden" }, caption),
        h("thead", null, h("tr", null, heads.map(([text, kind]) => h("th", { scope: "col", class: kind }, text)))),
        h("tbody", null, rows.slice(at * ROWS, (at + 1) * ROWS).map((row) => h("tr", { class: row.fresh ? "fresh" : undefined }, row.map((cell, i) => h("td", { class: heads[i][1] }, cell))))))),
    pages > 1 && h("div", { class: "row pager" }, turn(-1, "Back"), h("span", { class: "soft small" }, num(at * ROWS + 1) + "–" + num(Math.min(rows.length, (at + 1) * ROWS)) + " of " + num(rows.length)), turn(1, "Next")));
  };
  draw();
  return box;
}

// confirmation has people write the name of the rule before anything happens that cannot be
// undone. Its ask(rule, go, ...texts) opens it; go() does it.
export function confirmation(title, action, done) {
  const field = h("input", { autocomplete: "off", spellcheck: "false", id: "confirm", required: true }), ok = h("button", { class: "danger", disabled: true }, action), problem = h("p", { class: "bad", role: "alert" }), name = h("bdi", { class: "key" }), text = h("p");
  let rule, go;
  const dialog = h("dialog", { "aria-labelledby": "confirm-title" }, h("form", { onsubmit: async (e) => {
    e.preventDefault();
    if (field.value !== rule) return;
    try { await go(field.value); dialog.close(); done(); } catch (wrong) { problem.textContent = wrong.message; }
  } }, h("h2", { id: "confirm-title" }, title), text, h("label", { for: "confirm" }, h("span", null, "Write the name of the rule, ", name, ", to go on"), field), problem, h("div", { class: "row" }, ok, h("button", { type: "button", onclick: () => dialog.close() }, "Leave it"))));
  field.addEventListener("input", () => { ok.disabled = field.value !== rule; });
  dialog.ask = (of, act, ...texts) => { rule = of; go = act; name.textContent = of; swap(text, ...texts.map((t) => (t instanceof Node ? t : document.createTextNode(t)))); field.value = ""; ok.disabled = true; problem.textContent = ""; dialog.showModal(); };
  return dialog;
}

export function card(size, title, note, ...children) {
  return h("section", { class: "card " + size }, h("div", { class: "cardhead" }, h("h2", null, title), note && h("span", { class: "soft small" }, note)), ...children);
}

// svg makes an element of a drawing.
export function svg(tag, attributes, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
}
// spark draws values, of which only the last ones are known: nothing is drawn before.
export function spark(values, known) {
  const top = Math.max(1, ...values), n = Math.max(1, values.length - 1), from = Math.min(n, Math.max(0, values.length - known)), x = (i) => ((i * 88) / n + 1).toFixed(1);
  const line = values.slice(from).map((v, i) => (i ? "L" : "M") + x(from + i) + " " + (20 - (v * 18) / top).toFixed(1)).join("");
  return svg("svg", { viewBox: "0 0 90 22", class: "spark", "aria-hidden": "true" }, svg("path", { class: "a", d: line + "L89 21L" + x(from) + " 21Z" }), svg("path", { d: line }));
}

export const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// outcomes are the curves of requests and checks. Those that are optional are drawn where there are
// any.
export const outcomes = [
  { label: "Admitted", color: "--good-fill", of: (m) => m.allowed }, { label: "Denied", color: "--bad-fill", fill: true, of: (m) => m.denied + (m.listed || 0) },
  { label: "No answer", color: "--ink", of: (m) => m.failed || 0, optional: true }, { label: "Without the store", color: "--warn", dash: [6, 3], of: away, optional: true },
  { label: "In shadow", color: "--shade-fill", dash: [4, 4], of: (m) => m.shadow, optional: true }];
// away counts what was decided without the store; all counts every outcome.
export function away(c) { return (c.open || 0) + (c.local || 0); }
export const all = (c) => c.allowed + c.denied + (c.uncharged || 0) + (c.failed || 0) + (c.listed || 0);
// columns are heads and cells of outcomes for a table of things that have counts.
const cells = [["Denied", "bad", (c) => c.denied], ["No answer", "bad", (c) => c.failed || 0, true], ["Without the store", "warn", away, true], ["In shadow", "shade", (c) => c.shadow, true], ["Admitted", "", (c) => c.allowed]];
export function columns(list) {
  const shown = cells.filter(([, , of, optional]) => !optional || list.some((c) => of(c)));
  return { heads: shown.map(([text]) => [text, "n"]), cells: (c) => shown.map(([, kind, of]) => h("span", { class: of(c) ? kind : "soft" }, num(of(c)))) };
}

// plot draws lines over time, with marks. It follows its width and the theme until the page is left.
// Who drags over it chooses the time that the whole page shows.
export function plot(page, label, series, options = {}) {
  const box = h("div", { class: "plot", role: "img", "aria-label": label });
  let chart, data, marks = [], drawn;
  const used = () => series.map((s, i) => !s.optional || data[i + 1].some((v) => v));
  const paint = (u) => {
    const g = u.ctx, { top, height, left, width } = u.bbox, x = (ms) => Math.max(left, Math.min(left + width, u.valToPos(ms / 1000, "x", true)));
    g.save();
    for (const m of marks.filter((m) => (m.until || m.at) / 1000 >= u.scales.x.min && m.at / 1000 <= u.scales.x.max)) {
      g.fillStyle = g.strokeStyle = color({ outage: "--bad", policy: "--accent", reload: "--warn" }[m.kind] || "--soft");
      g.lineWidth = devicePixelRatio; g.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
      if (m.kind === "outage") { g.globalAlpha = 0.12; g.fillRect(x(m.at), top, Math.max(2, x(m.until || Date.now()) - x(m.at)), height); g.globalAlpha = 1; }
      g.beginPath(); g.moveTo(x(m.at), top); g.lineTo(x(m.at), top + height); g.stroke();
    }
    g.restore();
  };
  const draw = () => {
    chart?.destroy();
    chart = null;
    if (!data?.[0].length || !box.clientWidth) return;
    const on = (drawn = used()), shown = series.filter((s, i) => on[i]);
    const grid = { stroke: color("--line"), width: 1 }, axis = { stroke: color("--soft"), grid, ticks: { show: false }, font: "12px " + color("--sans") };
    chart = new uPlot({
      width: box.clientWidth, height: options.height || 210, padding: [8, 18, 0, 0],
      cursor: { y: false, points: { size: 6 }, drag: { x: true, y: false, setScale: false } }, scales: { y: { range: (u, min, max) => [0, Math.max(max * 1.08, options.least || 1)] } },
      axes: [{ ...axis, size: 34, space: long(page) ? 100 : 50, values: (u, at) => at.map((t) => moment(page, t)) }, { ...axis, size: options.size || 52, values: (u, at) => at.map(options.value || tick) }],
      series: [{ label: "Minute", value: (u, t) => (t ? moment(page, t) : "–") }, ...shown.map((s) => ({
        label: s.label, stroke: color(s.color), width: 2, fill: s.fill ? color(s.color) + "26" : undefined, points: { show: (u, i) => u.data[i].filter((v) => v !== null).length < 3 }, dash: s.dash,
        value: (u, v) => (v === null || v === undefined ? "–" : (options.value || num)(v)),
      }))],
      hooks: {
        setCursor: [(u) => u.cursor.idx == null && idle(u)], draw: [paint],
        setSelect: [(u) => u.select.width > 8 && page.zoom(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"))],
      },
    }, data.filter((_, i) => !i || on[i - 1]), box);
    idle(chart);
  };
  // Without a pointer the legend says what the last minute had.
  const idle = (u) => u.setLegend({ idx: u.data[0].length - 1 }, false);
  const observer = new ResizeObserver(() => { if (chart && box.clientWidth) chart.setSize({ width: box.clientWidth, height: options.height || 210 }); else draw(); });
  observer.observe(box);
  page.leave(() => { observer.disconnect(); chart?.destroy(); });
  page.themed(draw);
  box.show = (next, happened = []) => {
    data = next; marks = happened;
    if (!chart || used().some((on, i) => on !== drawn[i])) return draw();
    chart.setData(data.filter((_, i) => !i || drawn[i - 1]));
    if (chart.cursor.idx == null) idle(chart);
  };
  return box;
}

// lines are the minutes that the page shows, as a plot has them. Where the server was not there, there
// is a gap, and not a zero. Of a longer time, minutes are those on average in each step.
export function lines(page, minutes, past, curves = outcomes) {
  const shown = within(page, minutes, past), by = past ? past.step / 60 : 1;
  return [shown.map((m) => m.at), ...curves.map((c) => shown.map((m) => (m.unknown ? null : c.of(m) / by)))];
}
// within are the minutes that the page shows, without the one that is running. Those of the past are
// what was asked for.
export function within(page, minutes, past) {
  if (past && !past.error) return minutes;
  const end = Number(page.params.get("until")) || minutes.at(-1)?.at || 0;
  return minutes.filter((m) => m.at < end && m.at >= end - rangeMinutes(page) * 60);
}

// minutesTable is the twin of a plot of minutes.
export function minutesTable(page, minutes, past) {
  const rows = within(page, minutes, past).reverse().filter((m) => all(m) + m.shadow > 0), c = columns(rows), step = (past?.step || 60) / 60;
  return table("Minute by minute", [[step === 1 ? "Minute" : plural(step, "minute") + " from"], ...c.heads], rows.map((m) => [moment(page, m.at), ...c.cells(m)]), "No traffic in this time.");
}
// remembered says since when what has no history is known.
export function remembered(past) {
  return past && h("p", { class: "note", role: past.error ? "alert" : undefined }, past.error ? "What is longer ago cannot be shown: " + past.error + "." : "Requests and rules are from " + past.source + ". Clients, limits, doors and lists are known since " + clock(past.kept, false) + ".");
}
// happened lists marks in words: the twin of those on plots.
export function happened(marks) {
  const words = { outage: "Outage", policy: "Policy", reload: "Reload", start: "Start" };
  return table("What happened", [["When"], ["What"], [""]], marks.toReversed().map((m) => [day(m.at), words[m.kind], m.text + (m.kind === "outage" ? (m.until ? ", for " + duration(m.until - m.at) : ", and does not answer yet") : "")]), "Nothing.");
}
// said is what the server says, with its times as the reader's clock has them.
export function said(text) { return text.split(/\{t:(\d+)\}/).map((part, i) => (i % 2 ? clock(part * 1000, false) : part)); }
// finder is a box in which one looks for a client. What is looked for may be a secret, which does not
// belong into an address.
export function finder(page, value = "") {
  const field = h("input", { type: "search", value, maxlength: 1024, autocomplete: "off", spellcheck: "false", placeholder: "Address, key or subject", "aria-label": "Find a client by address, key or subject" });
  return h("form", { class: "row", role: "search", onsubmit: (e) => { e.preventDefault(); page.open("/clients", { q: field.value.trim() }); } }, field, h("button", null, "Find"));
}
// clientsTable shows keys of any rule.
export function clientsTable(list, empty, short) {
  const away = list.some((c) => c.away), used = list.some((c) => c.used);
  return table("Clients", [["Client"], ["Rule"], ["Denied", "n"], away && ["Without the store", "n"], used && ["Units", "n"], ["Since", "n"], !short && ["Last", "n wide-only"]].filter(Boolean), list.map((c) => [
    [keyLink(c.rule, c.key, c.tier, "c" + c.rule), c.known && h("div", { class: "soft small" }, h("bdi", null, c.known))], ruleLink(c.rule), h("span", { class: c.denied ? "bad" : "soft", title: c.error ? "too high by " + num(c.error) + " at most" : undefined }, num(c.denied)),
    away && h("span", { class: c.away ? "warn" : "soft" }, num(c.away || 0)), used && num(c.used || 0), c.unseen ? h("span", { class: "soft" }, "not seen") : minute(c.since), !short && minute(c.last)].filter((cell) => cell !== false)), empty);
}
export const minute = (seconds) => (seconds ? clock(seconds * 1000, false) : "–");
export function twin(title, ...children) { const inner = h("div"); swap(inner, ...children); const d = h("details", null, h("summary", null, title), inner); d.inner = inner; return d; }
// ranges choose the time that the whole page shows: the last minutes, or what was dragged over.
export const DEFAULT = "30m";
export const rangeOf = (page) => ({ range: page.params.get("range") || DEFAULT, until: page.params.get("until") });
// known says what the server can answer.
export const known = { history: false };
export const long = (page) => rangeMinutes(page) > KEPT;
const KEPT = 120;
// moment is a minute, with its day where the page shows more than one.
const moment = (page, seconds) => (long(page) ? day(seconds * 1000).slice(5, 16) : clock(seconds * 1000, false));
export const rangeMinutes = (page) => parseInt(rangeOf(page).range, 10);
export function ranges(page) {
  const { range: now, until } = rangeOf(page), params = Object.fromEntries(page.params);
  return h("span", { class: "seg", role: "group", "aria-label": "How far to look back" }, [["10m", "10 min"], ["30m", "30 min"], ["60m", "1 h"], ["120m", "2 h"], ...(known.history ? [["1440m", "24 h"], ["10080m", "7 days"]] : [])].map(([range, text]) =>
    link(location.pathname, { ...params, range, until: "" }, { "aria-current": now === range && !until ? "true" : undefined, "data-f": "range" + range }, text)),
  until && h("a", { "aria-current": "true" }, moment(page, until - rangeMinutes(page) * 60) + "–" + moment(page, until)));
}
// spanText says which time the page shows.
export function spanText(page, since) {
  const { until } = rangeOf(page), n = rangeMinutes(page), end = until || Date.now() / 1000, from = end - n * 60;
  if (since / 1000 > from + 60) return "since " + (long(page) ? "" : "the start at ") + moment(page, since / 1000);
  return until ? "from " + moment(page, from) + " to " + moment(page, end) : "in the last " + (n < 60 ? n + " min" : n <= 1440 ? n / 60 + " h" : n / 1440 + " days");
}
// keysText is the same for what is kept for two hours only: keys, latencies.
export function keysText(page) { return long(page) ? "in the last 2 h, for which this is kept" : spanText(page, 0); }
export function head(title, lead, ...right) { return h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", null, title), lead && h("p", { class: "lead" }, lead)), ...right); }
export function missing(instances) {
  const away = (instances || []).filter((i) => !i.ok);
  return away.length ? h("p", { class: "note", role: "alert" }, "Not in these figures: " + away.map((i) => i.name + " (" + i.error + ")").join("; ")) : null;
}
