// What people did.
import { h, swap, ask, head, card, table, day, missing } from "/lib.js";
export const title = "Audit";

export async function show(page) {
  const note = h("div"), list = h("div");
  swap(page.root, head("Audit", "What people did since the instances were started: the last 200 entries of each. The log has all of them."), note, h("div", { class: "grid" }, card("", "Entries", "the newest first", list)));
  await page.every(5000, async () => {
    const a = await ask("audit", {}, page.signal);
    swap(note, missing(a.instances));
    swap(list, table("Entries", [["When"], ["What"], ["Result"], ["Details"], ["From"], ["Instance"]], a.entries.map((e) => [day(e.at), e.what, h("span", { class: e.ok ? "good" : "bad" }, e.ok ? "done" : "refused"), h("bdi", { class: "key" }, e.detail || ""), h("span", { class: "key" }, e.who || ""), h("bdi", null, e.instance)]), "Nobody has done anything yet."));
  });
}
