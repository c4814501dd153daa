// The gates that bound how much is in progress.
import { h, swap, ask, head, card, table, num, missing, meter, chip } from "/lib.js";
export const title = "Flow";

export async function show(page) {
  const note = h("div"), gates = h("div");
  swap(page.root, head("Flow", "How much is in progress, and what bounds it."), note, h("div", { class: "grid" }, card("", "Gates", "a limit is for each key, where there are keys", gates)));
  await page.every(3000, async () => {
    const f = await ask("flow", {}, page.signal);
    swap(note, missing(f.instances));
    swap(gates, table("Gates", [["Gate"], ["Instance"], ["Kind"], ["Held", "n"], ["Keys", "n"], ["Limit", "n"], ["Waiting", "n"], ["Turned away", "n"]], f.gates.map((g) => [h("bdi", null, g.name), h("bdi", null, g.instance), chip(g.kind), [num(g.held), " ", meter(g.held / Math.max(1, g.limit * Math.max(1, g.keys)))], g.kind === "adaptive" ? "–" : num(g.keys), num(g.limit), num(g.waiting), h("span", { class: g.rejected ? "bad" : "soft" }, num(g.rejected))]),
      "Nothing here bounds what is in progress. Rules with in_progress do, and the concurrency and load of a gateway file."));
  });
}
