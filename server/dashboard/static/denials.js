// Denials as they happen.
import { h, swap, ask, head, card, table, num, clock, duration, keyLink, ruleLink, missing, chip } from "/lib.js";
export const title = "Denials";
const MOST = 100;

export function denialHeads(rule) { return [["Time"], rule && ["Rule"], rule && ["Key"], ["Limit"], ["Left", "n"], ["Fits in", "n"], ["Times", "n"], ["Through", "wide-only"], ["Policy", "n wide-only"]].filter(Boolean); }
export function denialRows(list, rule) {
  return list.map((d) => {
    const row = [h("time", { datetime: new Date(d.at).toISOString(), class: "key" }, clock(d.at)), rule && ruleLink(d.rule), rule && keyLink(d.rule, d.key, d.tier, "d" + d.node + d.seq),
      [h("span", { class: "key" }, d.limit), d.shadow && [" ", chip("shadow", "shade")]], num(d.remaining) + " of " + num(d.capacity) + (d.cost > 1 ? ", asked " + num(d.cost) : ""), duration(d.retry_after_ms), num(d.times), (d.door || "library") + (d.source === "store" ? "" : d.source === "local" ? ", by this server's share" : ", " + d.source.replaceAll("_", " ")), d.version ? num(d.version) : "–"].filter((c) => c !== false);
    row.fresh = d.fresh;
    return row;
  });
}

export async function show(page) {
  let list = [], lost = 0, waiting = 0, paused = false;
  const text = h("input", { type: "search", placeholder: "Filter by rule, key or limit", "aria-label": "Filter by rule, key or limit", value: page.params.get("q") || "" });
  const pause = h("button", { type: "button", "aria-pressed": "false" }, "Pause"), copy = h("button", { type: "button" }, "Copy as JSON lines"), rows = h("div"), note = h("div"), left = h("span", { class: "soft small", role: "status" });
  swap(page.root, head("Denials", "As they happen, the newest first: at most one a second for each key and rule.", text, pause, copy), note, h("div", { class: "grid" }, card("", "Live", left, rows)));
  const fits = (d) => { const q = text.value.trim().toLowerCase(); return !q || d.rule.toLowerCase().includes(q) || d.key.text.toLowerCase().includes(q) || d.limit.toLowerCase().includes(q); };
  const draw = () => {
    swap(rows, table("Denials", denialHeads(true), denialRows(list.filter(fits).slice(0, MOST), true), list.length ? "None fits the filter." : "Nobody was denied."));
    for (const d of list) d.fresh = false;
    left.textContent = (paused ? "paused; " + num(waiting) + " more have come" : "following") + (lost ? " · dropped " + num(lost) + ", which came too fast" : "");
  };
  text.addEventListener("input", () => { const u = new URL(location); text.value ? u.searchParams.set("q", text.value) : u.searchParams.delete("q"); history.replaceState(null, "", u); draw(); });
  pause.addEventListener("click", () => { paused = !paused; waiting = 0; pause.textContent = paused ? "Go on" : "Pause"; pause.setAttribute("aria-pressed", String(paused)); draw(); });
  copy.addEventListener("click", async () => { try { await navigator.clipboard.writeText(list.filter(fits).map((d) => JSON.stringify(d)).join("\n")); copy.textContent = "Copied"; } catch { copy.textContent = "Not allowed here"; } setTimeout(() => { copy.textContent = "Copy as JSON lines"; }, 2000); });
  const seen = new Set();
  const take = (d, fresh) => { const id = d.node + d.seq; if (seen.has(id)) return; seen.add(id); d.fresh = fresh; list.unshift(d); if (list.length > 2 * MOST) for (const old of list.splice(2 * MOST)) seen.delete(old.node + old.seq); };
  await page.guard(async () => { const first = await ask("denials", { limit: 100 }, page.signal); swap(note, missing(first.instances)); for (const d of first.denials) take(d, false); draw(); });
  let soon;
  page.on("denial", (d) => { if (paused) { waiting++; return; } take(d, true); soon ||= setTimeout(() => { soon = 0; if (!page.signal.aborted) draw(); }, 50); });
  page.on("lost", (n) => { lost += n; draw(); });
}
