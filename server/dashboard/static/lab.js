// The lab: what each algorithm makes of the same requests. Decided by the server's own code,
// compiled to WebAssembly; here is only what draws it.
import { h, swap, num, card, table, color } from "/lib.js";
export const title = "Lab";

const LENGTH = 60000, EVERY = 60; // milliseconds
const lanes = {
  token_bucket: ["Token bucket", "A bucket of tokens. Each request takes one, and they come back one by one.", "tokens in use"],
  leaky_bucket: ["Leaky bucket", "A queue. Requests that come at once leave one by one, and wait until then.", "in the queue"],
  fixed_window: ["Fixed window", "A count that begins at zero again at the end of each window.", "in this window"],
  sliding_window: ["Sliding window", "Each request counts until exactly one period after it came.", "in the last period"],
  sliding_counter: ["Sliding counter", "As a sliding window, but estimated from two counts.", "estimated"],
  two_windows: ["Two windows at once", "A third of the units may come within a tenth of the period. Both limits have to admit.", "in the fuller one"],
  penalty: ["Window with a penalty", "After three denials within a period nothing is admitted for as long, and for longer each time.", "in the last period"],
};
const some = (n, f) => Array.from({ length: n }, (_, i) => f(i));
// One client of a web site, from its access log: seconds since its first request.
const real = [0, 2, 2, 3, 3, 4, 10, 11, 12, 13, 15, 19, 20, 20, 25, 26, 27, 27, 28, 30, 30, 30, 30, 30, 31, 31, 32, 33, 33, 36, 36, 39, 39, 42, 43, 43, 46, 47, 47, 49, 50, 50, 53, 54, 54, 55, 56];
const traces = {
  burst: ["A burst", "Quiet, then everything at once, then quiet.", () => [...some(8, (i) => i * 2500), ...some(30, (i) => 22000 + i * 60), ...some(9, (i) => 36000 + i * 2500)]],
  boundary: ["Twice at a boundary", "A full limit just before a window ends, and one just after.", (t) => [...some(t.count, (i) => t.period * 2 - 900 + (i * 800) / t.count), ...some(t.count, (i) => t.period * 2 + 100 + (i * 800) / t.count)]],
  steady: ["Steady", "A little less than the limit, evenly.", (t) => some(Math.floor((LENGTH * t.count * 0.95) / t.period), (i) => 200 + (i * t.period) / (t.count * 0.95))],
  storm: ["A retry storm", "A server comes back, and clients that never waited try again and again.", () => some(13, (n) => some(Math.max(1, Math.round(22 * 0.72 ** n)), (i) => 8000 + n * 4000 + i * 45)).flat()],
  real: ["A real client", "A minute of an access log.", () => real.map((s, i) => s * 1000 + (i % 5) * 120)],
  drawn: ["Drawn", "Draw requests per second into the picture, with the mouse, a finger or the arrow keys.", (t, own) => own],
  pasted: ["Pasted", "Times, or lines of an access log.", (t, own) => own],
};

// The lesson: five things to predict before the server's own code decides them. Requests are [time,
// cost], the limit is 10 in 10 s, and of() reads the answer to the question off the lanes.
const admitted = (lanes, name, from = 0) => lanes.find((l) => l.name === name).answers.slice(from).filter((a) => a[0]).length;
const steps = [
  { title: "The boundary that doubles", requests: [...some(10, (i) => [19000 + i * 90, 1]), ...some(10, (i) => [20050 + i * 90, 1])],
    ask: "The limit is 10 in 10 seconds. Ten requests come just before a fixed window ends, ten just after. How many of the 20 does it admit, within two seconds?", options: [10, 15, 20], of: (l) => admitted(l, "fixed_window"),
    why: (l) => "The count begins at zero again at the boundary. A sliding window admits " + admitted(l, "sliding_window") + ", since each request counts until a whole period after it came.",
    choose: "Choose a fixed window for quotas that people read, such as so many a day. Choose a sliding window where the limit must hold in any period." },
  { title: "Bursts and refill", requests: [...some(20, (i) => [10000 + i * 10, 1]), ...some(10, (i) => [11300 + i * 1000, 1])],
    ask: "A bucket of 10 tokens gets one back each second. Twenty requests come at once, then one each second. How many of those ten are admitted?", options: [0, 5, 10], of: (l) => admitted(l, "token_bucket", 20),
    why: (l) => "The burst took the ten tokens, and then there is one for each second. A sliding window admits " + admitted(l, "sliding_window", 20) + " of the ten: its ten units come back only when the burst is a period old.",
    choose: "Choose a token bucket for clients that are quiet and then busy. Choose its burst by what the service takes at once." },
  { title: "Cost", requests: [[5000, 4], [5100, 4], [5200, 4], ...some(4, (i) => [5300 + i * 100, 1])],
    ask: "Three exports cost 4 units each, then four pages cost 1 each, all within a second. The limit is 10 units. How many of the seven requests are admitted by a sliding window?", options: [2, 4, 7], of: (l) => admitted(l, "sliding_window"),
    why: () => "Two exports take 8. The third does not fit and is charged nothing, so that two pages still fit.",
    choose: "Choose costs where requests differ in what they take. A cost above the limit never fits." },
  { title: "Several limits at once", requests: some(10, (i) => [5000 + i * 50, 1]),
    ask: "Besides 10 in 10 seconds, a second limit lets a third of that through in one second. Ten requests come at once. How many are admitted?", options: [3, 7, 10], of: (l) => admitted(l, "two_windows"),
    why: () => "Both limits have to admit, and what one denies is charged to neither.",
    choose: "Choose a short limit against bursts and a long one against the sum: 10 per second and 1,000 per hour." },
  { title: "What a queue does", requests: some(10, (i) => [5000 + i, 1]),
    ask: "A leaky bucket lets one request a second through. Ten come at once. How many seconds does the last of them wait?", options: [0, 5, 9], of: (l) => Math.round(Math.max(...l.find((one) => one.name === "leaky_bucket").answers.map((a) => a[1])) / 1000),
    why: (l) => admitted(l, "leaky_bucket") + " of them are admitted, and leave one by one. Nobody is turned away as long as the queue has room, and everybody waits.",
    choose: "Choose a queue before a service that takes no bursts at all, and only if those who ask can wait." },
];

// lesson is the card with the steps. run decides; look shows the requests in the instrument below.
function lesson(run, look) {
  let at = 0, said = null;
  const box = h("div");
  const draw = () => {
    const step = steps[at], lanes = run({ requests: step.requests, terms: [[0, 10, 10, 10000]], length: LENGTH, every: EVERY }).lanes, is = step.of(lanes);
    const turn = (by, text) => h("button", { type: "button", "data-f": text, disabled: !steps[at + by], onclick: () => { at += by; said = null; draw(); } }, text);
    swap(box, h("h3", null, at + 1 + " of " + steps.length + ": " + step.title), h("p", null, step.ask),
      h("div", { class: "row", role: "group", "aria-label": "Your prediction" }, step.options.map((n) => h("button", { type: "button", "data-f": "say" + n, "aria-pressed": String(said === n), onclick: () => { said = n; draw(); } }, num(n)))),
      h("div", { "aria-live": "polite" }, said !== null && [h("p", null, h("b", { class: said === is ? "good" : "bad" }, (said === is ? "Right: " : "It is ") + num(is) + ". "), step.why(lanes)), h("p", { class: "soft" }, step.choose)]),
      h("div", { class: "row pager" }, said !== null && step.requests.every(([, cost]) => cost === 1) && h("button", { type: "button", onclick: () => look(step.requests) }, "See it below"), turn(-1, "Back"), turn(1, "Next")));
  };
  draw();
  return card("labtop lesson", "Five things to know", "predict, and let the server's code decide", box);
}

// times reads seconds, or the times of log lines, and gives milliseconds since the first.
export function times(text) {
  const months = "JanFebMarAprMayJunJulAugSepOctNovDec", found = [];
  for (const line of text.split(/[\n,;]+/)) {
    const clf = /\[(\d+)\/(\w{3})\/(\d{4}):(\d+):(\d+):(\d+) ([+-])(\d\d)(\d\d)\]/.exec(line), iso = /\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?/.exec(line), plain = /^\s*(\d+(\.\d+)?)\s*$/.exec(line);
    if (clf) found.push(Date.UTC(clf[3], months.indexOf(clf[2]) / 3, clf[1], clf[4], clf[5], clf[6]) - (clf[7] === "-" ? -1 : 1) * (clf[8] * 60 + +clf[9]) * 60000);
    else if (iso) found.push(Date.parse(iso[0]));
    else if (plain) found.push(plain[1] * 1000);
  }
  const all = found.filter(Number.isFinite).sort((a, b) => a - b), first = all.length ? all[0] : 0;
  return all.map((t) => t - first).filter((t) => t < LENGTH).slice(0, 2000);
}

let started;
// engine is the server's own code, which is fetched once.
function engine() {
  return (started ||= (async () => {
    if (!globalThis.headgateWasm) await import("/vendor/wasm_exec.js");
    const go = new globalThis.Go(), bytes = globalThis.headgateWasm ? await globalThis.headgateWasm() : await (await fetch("/lab.wasm")).arrayBuffer();
    const { instance } = await WebAssembly.instantiate(bytes, go.importObject);
    go.run(instance);
    return globalThis.headgateLab;
  })());
}

export async function show(page) {
  const run = await engine();
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  let terms = { count: 10, burst: 10, period: 10000 }, changes = [], kind = "burst", own = [], drawing = some(60, () => 0), at = 0, playing = false, speed = 4, result = [], requests = [], frame;

  const option = (value, text) => h("option", { value }, text);
  const choose = h("select", { id: "trace" }, Object.entries(traces).map(([k, [name]]) => option(k, name)));
  const period = h("select", { id: "period" }, [5, 10, 20, 30].map((s) => option(s, s + " seconds")));
  period.value = 10;
  const range = (id, min, max, value, step = 1) => h("input", { type: "range", id, min, max, step, value });
  const count = range("count", 1, 40, 10), burst = range("burst", 1, 40, 10), cursor = range("cursor", 0, LENGTH, 0, EVERY);
  cursor.setAttribute("aria-label", "Time");
  const countText = h("output", { for: "count" }), burstText = h("output", { for: "burst" }), clockText = h("output", { for: "cursor", class: "labclock" }), about = h("p", { class: "soft" }), changed = h("p", { class: "small soft", role: "status" });
  const play = h("button", { class: "main", type: "button" }, "Play"), step = h("button", { type: "button" }, "Step"), again = h("button", { type: "button" }, "Start again"), faster = h("select", { id: "speed", "aria-label": "Speed" }, [1, 2, 4, 10].map((s) => option(s, s + " × speed")));
  faster.value = 4;
  const paste = h("textarea", { id: "paste", rows: 4, spellcheck: "false", placeholder: "0.0\n0.2\n0.4\nor lines of an access log" }), pasteBox = h("label", { for: "paste", hidden: true }, "Times in seconds, one a line, or lines of an access log. Nothing is sent anywhere.", paste);
  const traceCanvas = h("canvas", { class: "labtrace", role: "img" }), wrong = h("p", { class: "note bad", role: "alert", hidden: true });
  const rows = Object.entries(lanes).map(([name, [text, what, inside]]) => {
    const line = h("canvas", { class: "labline", role: "img" }), now = h("canvas", { class: "labnow", "aria-hidden": "true" }), figure = h("b"), rest = h("span", { class: "soft small" }), tally = h("div", { class: "small labtally" }), limits = h("span", { class: "key" });
    return { name, line, now, figure, rest, tally, limits, inside, box: h("section", { class: "card lane", "aria-labelledby": "lane-" + name }, h("div", { class: "lanehead" }, h("h2", { id: "lane-" + name }, text), limits, h("p", { class: "soft small" }, what)), line, h("div", { class: "lanenow" }, now, h("div", null, h("div", { class: "figure" }, figure, rest), tally))) };
  });
  const summary = h("div");
  page.root.replaceChildren(
    h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", null, "Lab"), h("p", { class: "lead" }, "The same requests, decided by each algorithm: by the server's own code, in your browser. ", h("span", { class: "good" }, "Marks above the line"), " are admitted, ", h("span", { class: "bad" }, "marks below"), " denied. The area is how much is used."))), wrong, lesson(run, look),
    h("section", { class: "card labtop" },
      h("div", { class: "labset" },
        h("label", { for: "trace" }, "Requests", choose),
        h("label", { for: "count" }, h("span", null, "Limit: ", countText), count),
        h("label", { for: "period" }, "in", period),
        h("label", { for: "burst" }, h("span", null, "Burst of buckets: ", burstText), burst)),
      about, pasteBox, traceCanvas,
      h("div", { class: "row labplay" }, play, step, again, faster, clockText, changed), cursor),
    ...rows.map((r) => r.box), card("", "In numbers", "up to the end", summary));

  // look shows requests of the lesson, with its limit.
  function look(list) {
    kind = choose.value = "pasted"; at = 0; playing = false; changes = []; period.value = 10;
    terms.count = terms.burst = 10; count.value = burst.value = 10;
    paste.value = list.map(([t]) => (t - list[0][0]) / 1000).join("\n"); own = list.map(([t]) => t);
    decide();
    choose.scrollIntoView({ block: "center" });
  }
  const told = () => [[0, ...changes.length ? changes[0].before : [terms.count, terms.burst], terms.period], ...changes.map((c) => [c.at, c.count, c.burst, terms.period])];
  function decide() {
    terms.period = period.value * 1000;
    requests = traces[kind][2]({ ...terms, count: changes.length ? changes[0].before[0] : terms.count }, own).map((t) => Math.max(0, Math.min(LENGTH, t))).sort((a, b) => a - b);
    const answer = run({ requests: requests.map((t) => [t, 1]), terms: told(), length: LENGTH, every: EVERY });
    wrong.hidden = !answer.error;
    if (answer.error) { wrong.textContent = answer.error; return; }
    result = answer.lanes;
    countText.textContent = terms.count; burstText.textContent = terms.burst;
    about.textContent = traces[kind][1];
    changed.textContent = changes.length ? "The limit was changed at " + changes.map((c) => (c.at / 1000).toFixed(1) + " s").join(", ") + ". What was used stays used." : "";
    pasteBox.hidden = kind !== "pasted";
    traceCanvas.tabIndex = kind === "drawn" ? 0 : -1;
    const most = (l) => { let best = 0; for (let i = 0, j = 0, n = 0; i < requests.length; i++) { if (!l.answers[i][0]) continue; n++; while (requests[j] <= requests[i] - terms.period) { if (l.answers[j][0]) n--; j++; } best = Math.max(best, n); } return best; };
    summary.replaceChildren(table("What each algorithm made of the requests", [["Algorithm"], ["Admitted", "n"], ["Denied", "n"], ["Most in any " + period.value + " s", "n"], ["Longest wait", "n"]],
      result.map((l) => { const yes = l.answers.filter((a) => a[0]).length, wait = Math.max(0, ...l.answers.map((a) => a[1])); return [lanes[l.name][0], num(yes), h("span", { class: yes < l.answers.length ? "bad" : "soft" }, num(l.answers.length - yes)), num(most(l)), wait ? (wait / 1000).toFixed(1) + " s" : "–"]; })));
    draw();
  }

  // sized makes a canvas as large as it is shown, and gives what to draw with.
  function sized(c) {
    const ratio = devicePixelRatio || 1, w = c.clientWidth, hi = c.clientHeight;
    if (c.width !== Math.round(w * ratio) || c.height !== Math.round(hi * ratio)) { c.width = Math.round(w * ratio); c.height = Math.round(hi * ratio); }
    const g = c.getContext("2d");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, w, hi);
    return [g, w, hi];
  }
  function draw() {
    const c = { ink: color("--ink"), soft: color("--soft"), line: color("--line"), wash: color("--wash"), good: color("--good-fill"), bad: color("--bad-fill"), accent: color("--accent"), shade: color("--shade-fill"), warn: color("--warn") };
    const x = (t, w) => (t / LENGTH) * w, i = Math.min(Math.round(at / EVERY), LENGTH / EVERY);
    { // The requests, by half seconds, and the cursor.
      const [g, w, hi] = sized(traceCanvas), bins = new Array(120).fill(0);
      for (const t of requests) bins[Math.min(119, Math.floor(t / 500))]++;
      const top = Math.max(6, ...bins), foot = hi - 16;
      g.strokeStyle = c.line; g.fillStyle = c.soft; g.font = "11px " + color("--sans"); g.textAlign = "center";
      for (let s = 0; s <= 60; s += w < 500 ? 20 : 10) { g.fillRect(x(s * 1000, w) - 0.5, foot, 1, 4); g.fillText(s + " s", Math.max(10, Math.min(w - 12, x(s * 1000, w))), hi - 2); }
      g.fillStyle = c.accent;
      bins.forEach((n, b) => { if (n) g.fillRect((b * w) / 120 + 0.5, foot - (n / top) * (foot - 6), w / 120 - 1, (n / top) * (foot - 6)); });
      g.fillStyle = c.line; g.fillRect(0, foot, w, 1);
      for (const change of changes) { g.fillStyle = c.warn; g.fillRect(x(change.at, w) - 1, 0, 2, foot); }
      g.fillStyle = c.ink; g.fillRect(x(at, w) - 1, 0, 2, foot);
      traceCanvas.setAttribute("aria-label", num(requests.length) + " requests in a minute: " + traces[kind][0] + (kind === "drawn" ? ". Arrow keys left and right choose a second, up and down change its requests." : ""));
    }
    for (const r of rows) {
      const l = result.find((of) => of.name === r.name);
      if (!l) continue;
      const [g, w, hi] = sized(r.line), middle = hi - 20, sample = l.samples[i] || [0, 1, 0];
      const shares = r.name === "two_windows", level = (s) => (shares ? s[0] / s[1] : s[0]), bound = (s) => (shares ? 1 : s[1]);
      const most = Math.max(...l.samples.map(bound));
      const y = (n) => middle - (n / most) * (middle - 10);
      if (r.name === "fixed_window") for (let t = 0; t <= LENGTH; t += terms.period) { g.fillStyle = c.line; g.fillRect(x(t, w), 4, 1, middle - 4); }
      l.samples.forEach((s, n) => { if (s[2]) { g.fillStyle = c.bad; g.globalAlpha = 0.14; g.fillRect(x(n * EVERY, w), 4, x(EVERY, w) + 0.6, middle - 4); g.globalAlpha = 1; } });
      g.beginPath(); g.moveTo(0, middle);
      l.samples.forEach((s, n) => { g.lineTo(x(n * EVERY, w), y(level(s))); g.lineTo(x((n + 1) * EVERY, w), y(level(s))); });
      g.lineTo(w, middle); g.closePath(); g.fillStyle = c.accent; g.globalAlpha = 0.22; g.fill(); g.globalAlpha = 1;
      g.strokeStyle = c.soft; g.setLineDash([4, 4]); g.beginPath();
      l.samples.forEach((s, n) => { const px = x(n * EVERY, w); n ? g.lineTo(px, y(bound(s))) : g.moveTo(px, y(bound(s))); });
      g.stroke(); g.setLineDash([]);
      let yes = 0, no = 0;
      l.answers.forEach(([allowed, delay], n) => {
        const past = requests[n] <= at;
        if (past) allowed ? yes++ : no++;
        g.globalAlpha = past ? 1 : 0.35;
        g.fillStyle = allowed ? c.good : c.bad;
        const px = x(requests[n], w);
        allowed ? g.fillRect(px - 1, middle - 11, 2, 10) : g.fillRect(px - 1, middle + 2, 2, 12);
        if (delay > 0) { g.fillStyle = c.shade; g.fillRect(x(requests[n] + delay, w) - 1, middle - 5, 2, 4); }
      });
      g.globalAlpha = 1;
      g.fillStyle = c.line; g.fillRect(0, middle, w, 1);
      g.fillStyle = c.ink; g.fillRect(x(at, w) - 1, 0, 2, hi);
      r.line.setAttribute("aria-label", num(l.answers.filter((a) => a[0]).length) + " of " + num(l.answers.length) + " requests are admitted. The table below has the numbers.");
      vessel(r, l, sample, c);
      r.limits.textContent = l.limits.join(", ");
      r.figure.textContent = num(sample[0]) + " of " + num(sample[1]);
      r.rest.textContent = sample[2] ? "blocked" : r.inside;
      r.tally.replaceChildren(h("span", { class: "good" }, num(yes) + " admitted"), h("span", { class: no ? "bad" : "soft" }, num(no) + " denied"));
    }
    clockText.textContent = (at / 1000).toFixed(1) + " s";
    cursor.value = at; cursor.setAttribute("aria-valuetext", (at / 1000).toFixed(1) + " seconds");
    play.textContent = playing ? "Pause" : "Play";
  }
  // vessel draws what is inside now: the level of a bucket, or the units of a window, each at its
  // place in time, which they leave at the left.
  function vessel(r, l, [used, capacity, blocked], c) {
    const [g, w, hi] = sized(r.now), share = Math.min(1, used / capacity);
    g.lineWidth = 2; g.strokeStyle = blocked ? c.bad : c.soft;
    if (r.name.endsWith("bucket")) {
      g.fillStyle = share >= 1 ? c.bad : c.accent;
      g.fillRect(w / 2 - 21, hi - 6 - share * (hi - 14), 42, share * (hi - 14));
      g.beginPath(); g.moveTo(w / 2 - 22, 6); g.lineTo(w / 2 - 22, hi - 5); g.lineTo(w / 2 + 22, hi - 5); g.lineTo(w / 2 + 22, 6); g.stroke();
      if (r.name === "leaky_bucket" && used > 0) { g.fillStyle = c.accent; g.fillRect(w / 2 - 2, hi - 4, 4, 4); }
      return;
    }
    const from = r.name === "fixed_window" ? Math.floor(at / terms.period) * terms.period : at - terms.period, place = (t) => 4 + ((t - from) / terms.period) * (w - 8);
    g.strokeRect(3, 8, w - 6, hi - 24);
    g.fillStyle = c.accent;
    const columns = {};
    l.answers.forEach(([allowed], n) => {
      if (!allowed || requests[n] > at || requests[n] <= from) return;
      const column = Math.round(place(requests[n]) / 6), n6 = (columns[column] = (columns[column] || 0) + 1);
      g.fillRect(Math.min(w - 9, Math.max(5, column * 6 - 2)), Math.max(10, hi - 18 - n6 * 5), 5, 4);
    });
    g.fillStyle = c.soft; g.font = "10px " + color("--sans"); g.textAlign = "left";
    g.fillText(r.name === "fixed_window" ? "begins" : "− " + period.value + " s", 3, hi - 4); g.textAlign = "right"; g.fillText(r.name === "fixed_window" ? "ends" : "now", w - 3, hi - 4);
  }

  function tick(last) {
    frame = requestAnimationFrame((t) => {
      at = Math.min(LENGTH, at + (last ? Math.min(100, t - last) * speed : 0));
      if (at >= LENGTH) playing = false;
      draw();
      if (playing) tick(t);
    });
  }
  play.onclick = () => { playing = !playing; if (playing && at >= LENGTH) at = 0; cancelAnimationFrame(frame); if (playing) tick(); draw(); };
  step.onclick = () => { playing = false; const next = requests.find((t) => t > at + 1); at = next === undefined ? LENGTH : Math.min(LENGTH, Math.ceil(next / EVERY) * EVERY); draw(); };
  again.onclick = () => { playing = false; at = 0; changes = []; decide(); };
  faster.onchange = () => { speed = +faster.value; };
  cursor.oninput = () => { playing = false; at = +cursor.value; draw(); };
  // A limit that is changed while time has begun to run changes from then on.
  const changeTo = (field, value) => {
    const before = [terms.count, terms.burst];
    terms[field] = value;
    if (at > 0 && at < LENGTH) {
      const rest = changes.filter((c) => c.at < at);
      changes = [...rest, { at, count: terms.count, burst: terms.burst, before: rest.length ? rest[0].before : changes.length ? changes[0].before : before }].slice(0, 20);
    } else changes = [];
    decide();
  };
  count.oninput = () => changeTo("count", +count.value);
  burst.oninput = () => changeTo("burst", +burst.value);
  period.onchange = () => { changes = []; decide(); };
  choose.onchange = () => { kind = choose.value; at = 0; playing = false; changes = []; own = kind === "pasted" ? times(paste.value) : fromDrawing(); decide(); };
  paste.oninput = () => { own = times(paste.value); decide(); };

  const fromDrawing = () => drawing.flatMap((n, s) => some(n, (i) => s * 1000 + (i * 1000) / n));
  let second = 0;
  const put = (e) => {
    const box = traceCanvas.getBoundingClientRect();
    second = Math.max(0, Math.min(59, Math.floor(((e.clientX - box.left) / box.width) * 60)));
    drawing[second] = Math.max(0, Math.min(20, Math.round((1 - (e.clientY - box.top) / (box.height - 16)) * 20)));
    own = fromDrawing(); decide();
  };
  traceCanvas.onpointerdown = (e) => { if (kind !== "drawn") { kind = choose.value = "drawn"; drawing = some(60, () => 0); } traceCanvas.setPointerCapture(e.pointerId); put(e); };
  traceCanvas.onpointermove = (e) => { if (e.buttons && kind === "drawn") put(e); };
  traceCanvas.onkeydown = (e) => {
    const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[e.key];
    if (!by || kind !== "drawn") return;
    e.preventDefault();
    second = Math.max(0, Math.min(59, second + by[0])); drawing[second] = Math.max(0, Math.min(20, drawing[second] + by[1]));
    at = second * 1000; own = fromDrawing(); decide();
  };
  const watch = new ResizeObserver(() => draw());
  watch.observe(page.root);
  page.themed(draw);
  page.leave(() => { playing = false; cancelAnimationFrame(frame); watch.disconnect(); });
  decide();
  if (!still) { at = 22800; draw(); }
}
