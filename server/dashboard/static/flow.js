// The gates that bound how much is in progress.
import { h, swap, ask, head, card, table, num, missing, meter } from "/lib.js";
export const title = "Flow";

export async function show(page) {
  const note = h("div"), gates = h("div");
  swap(page.root, head("Flow", "How much is in progress, and what bounds it."), note, h("div", { class: "grid" }, card("", "Gates", null, gates)));
  await page.every(3000, async () => {
    const f = await ask("flow", {}, page.signal);
    swap(note, missing(f.instances));
    swap(gates, table("Gates", [["Gate"], ["Instance"], ["Kind"], ["Held", "n"], ["Keys", "n"], ["Limit per key", "n"], ["Waiting", "n"], ["Turned away", "n"]], f.gates.map((g) => [h("bdi", null, g.name), h("bdi", null, g.instance), g.kind, [num(g.held), " ", meter(g.held / Math.max(1, g.limit * Math.max(1, g.keys)))], num(g.keys), num(g.limit), num(g.waiting), h("span", { class: g.rejected ? "bad" : "soft" }, num(g.rejected))]),
      "There are no gates here. The gateway has them where its file bounds concurrency."));
  });
}
