// How it is now, and which rules and clients to look at first.
import { h, swap, ask, send, head, card, lines, table, plot, outcomes, columns, spark, num, rate, percent, all, away, ruleLink, ranges, rangeOf, rangeMinutes, spanText, keysText, long, remembered, missing, minutesTable, clientsTable, finder, happened, twin, clock, plural } from "/lib.js";
export const title = "Now";

// The figures above the chart. Those that are optional are shown where there are any.
const tiles = [
  ["good", "admitted per second", (c) => c.allowed], ["bad", "denied per second", (c) => c.denied], ["bad", "no answer per second", (c) => c.failed || 0],
  ["warn", "let in uncounted per second", (c) => c.open || 0, true], ["warn", "decided by shares per second", (c) => c.local || 0, true],
  ["bad", "on the deny list per second", (c) => c.listed || 0, true], ["shade", "in shadow per second", (c) => c.shadow, true]];

export async function show(page) {
  const range = rangeOf(page), n = rangeMinutes(page);
  const lead = h("p", { class: "lead" }), note = h("div"), outage = h("div"), rules = h("div"), clients = h("div"), doors = h("div"), lists = h("div"), spans = [h("span"), h("span")];
  const figures = tiles.map(() => { const b = h("b", null, "–"), s = h("span"), sum = h("span"); return { b, s, sum, box: h("div", { class: "card c3 figure" }, b, s, sum) }; });
  const share = { b: h("b", null, "–"), s: h("span"), sum: h("span") };
  const chart = plot(page, "Requests per minute by outcome", outcomes), rows = twin("As a table"), marks = twin("What happened");
  const listsCard = card("", "Allow and deny lists", "requests that an entry answered, so that no limit was asked", lists);
  swap(page.root, head("Now", null, finder(page), ranges(page)), note, outage, h("div", { class: "grid" },
    figures.map((f) => f.box), h("div", { class: "card c3 figure" }, share.b, share.s, share.sum),
    card("", "Requests per minute", spans[0], chart, rows, marks),
    card("", "Rules to look at first", "most denials and requests without an answer first", rules),
    card("c8", "Clients to look at first", spans[1], clients), card("c4", "Where requests come from", null, doors), listsCard));
  page.root.querySelector(".head .grow").append(lead);
  await page.every(long(page) ? 60000 : 5000, async () => {
    const [now, found, happenings] = await Promise.all([ask("now", { ...range, limit: 100 }, page.signal), send("POST", "/api/find?" + new URLSearchParams({ range: range.range, ...(range.until && { until: range.until }), limit: 8 }), { q: "" }), ask("marks", range, page.signal)]);
    swap(note, missing(now.instances), remembered(now.past));
    swap(outage, now.outage && without(now.outage));
    chart.show(lines(page, now.minutes, now.past), happenings.marks);
    spans[0].textContent = spanText(page, now.since) + (now.past ? "; averages of " + plural(now.past.step / 60, "minute") : range.until ? "" : "; the minute that is running is left out") + "; drag to look closer";
    spans[1].textContent = "most denials " + keysText(page);
    swap(rows.inner, minutesTable(page, now.minutes, now.past));
    swap(marks.inner, happened(happenings.marks));
    const sum = now.total, total = all(sum), per = Math.max(1, Math.min(n * 60, (now.now - now.since) / 1000));
    for (const [i, [kind, text, of, optional]] of tiles.entries()) {
      const value = of(sum) || 0;
      figures[i].b.textContent = rate(value / per);
      figures[i].s.textContent = text;
      figures[i].sum.textContent = num(value) + " in all";
      figures[i].box.hidden = optional && !value;
      figures[i].box.className = "card c3 figure " + (value ? kind : "");
    }
    share.b.textContent = percent(sum.denied, total);
    share.s.textContent = "of requests denied " + spanText(page, now.since);
    share.sum.textContent = num(total) + " in all";
    const worst = now.rules.find((r) => r.denied > 0), lost = sum.failed || 0;
    lead.textContent = !total ? "No requests in this time." : (lost ? num(lost) + " requests got no answer. " : "") + (worst ? "Most denials come from the rule " + worst.rule + ": " + num(worst.denied) + " of its " + num(all(worst)) + " checks." : "No limit denies anybody.") + (away(sum) ? " " + num(away(sum)) + " requests were decided without the store." : "");
    const c = columns(now.rules), known = Math.floor(now.now / 60e3) - Math.floor(now.since / 60e3);
    swap(rules, table("Rules", [["Rule"], ...c.heads, ["Change", "n"], ["Last half hour", "wide-only"]], now.rules.map((r) => [ruleLink(r.rule, range), ...c.cells(r), change(r, now, n), spark(r.spark, known)]), "No rule was used in this time."),
      now.all_rules > now.rules.length && h("p", { class: "soft small" }, num(now.all_rules - now.rules.length) + " more rules were used."),
      now.left_out.decisions > 0 && h("p", { class: "note" }, num(now.left_out.decisions) + " checks are of rules that there was no memory to follow."));
    swap(clients, clientsTable(found.clients, "Nobody is limited.", true), found.more && h("p", { class: "soft small" }, "There are more on the page Clients."));
    const d = columns(now.doors);
    swap(doors, table("Doors", [["Door"], ...d.heads], now.doors.map((one) => [one.door || "library", ...d.cells(one)]), "No requests in this time."));
    listsCard.hidden = !now.lists.length;
    swap(lists, table("Lists", [["Entry"], ["List"], ["Hits", "n"], ["Before", "n"], ["Last half hour", "wide-only"]], now.lists.map((l) => [h("bdi", null, l.entry), l.denies ? "deny" : "allow", h("span", { class: l.denies ? "bad" : "" }, num(l.hits)), num(l.before), spark(l.spark, known)])));
  });
}

// without says what each rule does while the store does not answer.
function without(o) {
  const MOST = 12;
  return h("section", { class: "card outage", "aria-label": "Outage" }, h("h2", null, { open: "The store does not answer", half_open: "The store is coming back", learning: "The store has lost its data" }[o.state] + (o.since ? " since " + clock(o.since) : "") + ". What is denied or fails now may follow from it."),
    o.cause && h("p", { class: "small" }, h("bdi", { class: "key" }, o.cause)),
    h("ul", null, o.rules.slice(0, MOST).map((r) => h("li", null, ruleLink(r.rule), " " + r.does + "."))), o.rules.length > MOST && h("p", { class: "soft small" }, num(o.rules.length - MOST) + " more rules. The page of each says what it does."));
}

// change compares denials with those in as much time before, if the server was there all that time.
const FEW = 10;
function change(r, now, n) {
  const count = (c) => c.denied + c.shadow + (c.failed || 0), was = count(r.before), is = count(r);
  if (now.since > now.now - 2 * n * 60e3) return h("span", { class: "soft", title: "The server was not there for all of the time before" }, "–");
  if (was === is) return h("span", { class: "soft" }, "same");
  const kind = is > was ? "bad" : "good", title = num(was) + " before";
  if (was < FEW || is < FEW) return h("span", { class: kind, title }, (is > was ? "+" : "−") + num(Math.abs(is - was)));
  return h("span", { class: kind, title }, is > was ? "↑ × " + times(is / was) : "↓ ÷ " + times(was / is));
}
const times = (n) => (n < 10 ? n.toFixed(1) : num(n));
