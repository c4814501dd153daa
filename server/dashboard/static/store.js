// How the store does, seen from each instance.
import { h, swap, ask, head, card, table, plot, num, rate, percent, micros, duration, day, clock, keyLink, ruleLink, ranges, rangeOf, within, happened, missing, chip, twin, keysText } from "/lib.js";
export const title = "Store";
const words = { ok: "answers", open: "does not answer", half_open: "is coming back", learning: "has lost its data" };

export async function show(page) {
  const range = rangeOf(page), body = h("div"), note = h("div"), boxes = new Map();
  swap(page.root, head("Store", "How long calls took and what was done without it, seen from each instance, " + keysText(page) + ".", ranges(page)), note, body);
  await page.every(5000, async () => {
    const [r, happenings] = await Promise.all([ask("store", range, page.signal), ask("marks", range, page.signal)]), outages = happenings.marks.filter((m) => m.kind !== "policy");
    swap(note, missing(r.instances));
    for (const s of r.stores) {
      let box = boxes.get(s.instance);
      if (!box) {
        box = { title: h("h2"), chart: plot(page, "Latency of calls to the store: percentiles by minute", [{ label: "p50", color: "--good-fill" }, { label: "p99", color: "--accent" }, { label: "p99.9", color: "--bad-fill", dash: [4, 4] }], { value: micros, size: 70 }), facts: h("div"), figures: h("div"), shares: h("div"), rows: twin("As a table"), marks: twin("What happened") };
        boxes.set(s.instance, box);
        box.region = card("", "Shares of the region", "of limits that all regions keep to together; largest demand first", box.shares);
        body.append(h("div", { class: "grid" }, h("section", { class: "card" }, box.title, box.facts), card("", "Latency", "by minute; too high by a quarter at most", box.chart, box.rows, box.marks), card("", "Around the store", "since the start", box.figures), box.region));
      }
      swap(box.title, h("bdi", null, s.instance), " ", chip(words[s.state] || s.state, s.state === "ok" ? "" : "bad"));
      const f = s.range;
      swap(box.facts, h("p", { class: "soft key" }, s.name), h("div", { class: "grid figures" }, [["p50", micros(f.p50_us)], ["p99", micros(f.p99_us)], ["p99.9", micros(f.p999_us)], ["errors in " + num(f.calls) + " calls (" + percent(f.errors, f.calls) + ")", num(f.errors), f.errors ? "bad" : ""]].map(([text, value, kind]) => h("div", { class: "c3 figure " + (kind || "") }, h("b", null, value), h("span", null, text)))),
        s.last_error && h("p", { class: "small" }, "Last error, " + day(s.last_error_at) + ": ", h("bdi", { class: "key" }, s.last_error)));
      const m = within(page, s.minutes), value = (name) => m.map((x) => (x.calls ? x[name] : null));
      box.chart.show([m.map((x) => x.at), value("p50_us"), value("p99_us"), value("p999_us")], outages);
      swap(box.marks.inner, happened(outages));
      swap(box.rows.inner, table("Latency by minute", [["Minute"], ["Calls", "n"], ["Errors", "n"], ["p50", "n"], ["p99", "n"], ["p99.9", "n"]], m.filter((x) => x.calls).reverse().map((x) => [clock(x.at * 1000, false), num(x.calls), num(x.errors), micros(x.p50_us), micros(x.p99_us), micros(x.p999_us)]), "No calls."));
      box.region.hidden = !s.region;
      if (s.region) swap(box.shares, region(s.region));
      const groups = [...new Set(s.figures.map((x) => x.group))];
      swap(box.figures, groups.length ? h("div", { class: "groups" }, groups.map((g) => h("div", null, h("h3", null, g), h("dl", null, s.figures.filter((x) => x.group === g).map((x) => [h("dt", { title: x.help }, x.name), h("dd", { class: x.value ? "" : "soft" }, num(x.value))]))))) : h("p", { class: "empty" }, "The counters are in the memory of this process: nothing stands around them."));
    }
  });
}

// region shows what a region has of limits. Who cannot ask the home keeps its lease, and then has its own part.
function region(r) {
  return [h("p", null, "Region ", h("bdi", null, r.name), " ", r.cut && chip(r.lent ? "cut off: has its lease" : "cut off: has its own part", "bad")), r.cut && h("p", { class: "small" }, h("bdi", { class: "key" }, r.cut)),
    table("Shares of the region", [["Rule"], ["Key"], ["Limit"], ["Share", "n"], ["Since", "n"], ["Demand per second", "n"], ["Lent to others"]], r.shares.map((s) => [ruleLink(s.rule), keyLink(s.rule, s.key, "", "share"), h("span", { class: "key" }, s.limit), num(s.own + s.lent) + " of " + num(s.units), s.lent ? duration(s.since_ms) : "–", rate(s.demand_per_minute / 60), s.others.map((o) => o.region + " " + num(o.units)).join(", ") || h("span", { class: "soft" }, "nothing")]),
      "This instance asks the home for no key: each has enough with the region's own part, or another instance asks."), r.more > 0 && h("p", { class: "soft small" }, "Not shown: " + num(r.more) + " more.")];
}
