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

// swap shows other children, and keeps the focus on the one that has the same name.
export function swap(into, ...children) {
  const name = into.contains(document.activeElement) ? document.activeElement.dataset.f : undefined;
  const at = into.querySelector(".scroll")?.scrollLeft;
  into.replaceChildren(...children.flat(4).filter(Boolean));
  if (at) into.querySelector(".scroll").scrollLeft = at;
  if (name) for (const e of into.querySelectorAll("[data-f]")) if (e.dataset.f === name) { e.focus({ preventScroll: true }); break; }
}

const whole = new Intl.NumberFormat("en-US");
export const num = (n) => whole.format(Math.round(n));
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
export function ruleLink(rule, range) { return link("/rule", { rule, range }, { "data-f": "rule:" + rule }, h("bdi", null, rule)); }
export function keyLink(rule, key, tier, f = "") {
  return link("/key", { rule, key: key.id, tier }, { class: "key", "data-f": f + key.id, title: key.cut ? "The beginning of a longer key" : undefined }, h("bdi", null, key.text || "(one counter for all)"));
}
export function meter(part, color, wide) {
  return h("span", { class: "meter" + (wide ? " wide" : ""), "aria-hidden": "true", vars: { "--w": Math.max(0, Math.min(100, part * 100)) + "%", "--f": color || "var(--accent)" } }, h("i"));
}
export function chip(text, kind) { return h("span", { class: "chip " + (kind || "") }, text); }

// table makes a table: heads are [text, class], rows are lists of cells.
export function table(caption, heads, rows, empty) {
  if (!rows.length) return h("p", { class: "empty" }, empty || "Nothing yet.");
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", null, h("caption", { class: "hidden" }, caption),
      h("thead", null, h("tr", null, heads.map(([text, kind]) => h("th", { scope: "col", class: kind }, text)))),
      h("tbody", null, rows.map((row) => h("tr", { class: row.fresh ? "fresh" : undefined }, row.map((cell, i) => h("td", { class: heads[i][1] }, cell)))))));
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
export function spark(values) {
  const top = Math.max(1, ...values), n = Math.max(1, values.length - 1);
  const line = values.map((v, i) => (i ? "L" : "M") + ((i * 88) / n + 1).toFixed(1) + " " + (20 - (v * 18) / top).toFixed(1)).join("");
  return svg("svg", { viewBox: "0 0 90 22", class: "spark", "aria-hidden": "true" }, svg("path", { class: "a", d: line + "L89 21L1 21Z" }), svg("path", { d: line }));
}

export const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// plot draws lines over time. It follows its width and the theme until the page is left.
export function plot(page, label, series, options = {}) {
  const box = h("div", { class: "plot", role: "img", "aria-label": label });
  let chart, data;
  const draw = () => {
    chart?.destroy();
    if (!data || !box.clientWidth) return;
    const grid = { stroke: color("--line"), width: 1 }, axis = { stroke: color("--soft"), grid, ticks: { show: false }, font: "12px " + color("--sans") };
    chart = new uPlot({
      width: box.clientWidth, height: options.height || 210, padding: [8, 18, 0, 0],
      cursor: { y: false, points: { size: 6 } }, scales: { y: { range: (u, min, max) => [0, Math.max(max * 1.08, options.least || 1)] } },
      axes: [{ ...axis, size: 34, values: (u, at) => at.map((t) => clock(t * 1000, false)) }, { ...axis, size: options.size || 52, values: (u, at) => at.map(options.value || num) }],
      series: [{ label: "Minute", value: (u, t) => (t ? clock(t * 1000, false) : "–") }, ...series.map((s) => ({
        label: s.label, stroke: color(s.color), width: 2, fill: s.fill ? color(s.color) + "26" : undefined, points: { show: false }, dash: s.dash,
        value: (u, v) => (v === null || v === undefined ? "–" : (options.value || num)(v)),
      }))],
      hooks: { setCursor: [(u) => u.cursor.idx == null && idle(u)] },
    }, data, box);
    idle(chart);
  };
  // Without a pointer the legend says what the last minute had.
  const idle = (u) => u.setLegend({ idx: u.data[0].length - 1 }, false);
  const observer = new ResizeObserver(() => { if (chart && box.clientWidth) chart.setSize({ width: box.clientWidth, height: options.height || 210 }); else draw(); });
  observer.observe(box);
  page.leave(() => { observer.disconnect(); chart?.destroy(); });
  page.themed(draw);
  box.show = (next) => { const first = !data; data = next; if (first || !chart) draw(); else { chart.setData(data); if (chart.cursor.idx == null) idle(chart); } };
  return box;
}

// lines are the minutes that are over, from the start of the server on, as a plot has them.
export function lines(minutes, since) {
  const over = minutes.slice(0, -1), first = Math.min(over.length - 10, over.findIndex((m) => m.at >= since / 1000 - 60 || m.allowed + m.denied + m.shadow > 0)), from = over.slice(Math.max(0, first));
  return [from.map((m) => m.at), from.map((m) => m.allowed), from.map((m) => m.denied), from.map((m) => m.shadow)];
}

// minutesTable is the twin of a plot of minutes.
export function minutesTable(minutes, range) {
  const last = minutes.slice(-Math.min(minutes.length, range || 120)).reverse().filter((m) => m.allowed + m.denied + m.shadow > 0).slice(0, 120);
  return table("Minute by minute", [["Minute"], ["Admitted", "n"], ["Denied", "n"], ["In shadow", "n"]], last.map((m) => [clock(m.at * 1000, false), num(m.allowed), num(m.denied), num(m.shadow)]), "No traffic in this time.");
}
export function twin(title, ...children) { const inner = h("div"); swap(inner, ...children); const d = h("details", null, h("summary", null, title), inner); d.inner = inner; return d; }
export function ranges(page) {
  const now = page.params.get("range") || "10m0s";
  return h("span", { class: "seg", role: "group", "aria-label": "How far to look back" }, [["10m0s", "10 min"], ["1h0m0s", "1 h"], ["2h0m0s", "2 h"]].map(([range, text]) => {
    const params = Object.fromEntries(page.params); params.range = range;
    return link(location.pathname, params, { "aria-current": now === range ? "true" : undefined, "data-f": "range" + range }, text);
  }));
}
export const rangeMinutes = (range) => ({ "1h0m0s": 60, "2h0m0s": 120 })[range] || 10;
export function head(title, lead, ...right) { return h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", null, title), lead && h("p", { class: "lead" }, lead)), ...right); }
export function missing(instances) {
  const away = (instances || []).filter((i) => !i.ok);
  return away.length ? h("p", { class: "note", role: "alert" }, "Not in these figures: " + away.map((i) => i.name + " (" + i.error + ")").join("; ")) : null;
}
