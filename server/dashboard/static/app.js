// The frame of all pages: which one to show, who is signed in, how the server does.
import { h, swap, send, SignedOut, known, all, clock, num, percent, plural, link } from "/lib.js";
import * as now from "/now.js";
import * as rule from "/rule.js";
import * as clients from "/clients.js";
import * as key from "/key.js";
import * as denials from "/denials.js";
import * as store from "/store.js";
import * as policy from "/policy.js";
import * as flow from "/flow.js";
import * as audit from "/audit.js";

// The Lab is loaded where it is looked at: it is larger than all other pages.
const lab = { title: "Lab", show: async (page) => {
  if (!document.querySelector("link[href='/lab.css']")) document.head.append(h("link", { rel: "stylesheet", href: "/lab.css" }));
  await (await import("/lab.js")).show(page);
} };
const pages = { "/": now, "/rule": rule, "/clients": clients, "/key": key, "/denials": denials, "/store": store, "/policy": policy, "/flow": flow, "/lab": lab, "/audit": audit };
const main = document.getElementById("main"), nav = document.getElementById("nav"), status = document.getElementById("status"), words = document.getElementById("status-text"), facts = document.getElementById("facts");
// No news for so long means that the server is gone. Every page says so.
const OLD = 6000, gone = h("p", { class: "note bad", role: "alert", hidden: true });
let page, stream, last, heard = Date.now(), needed = false;

// Page is what a page gets: where to draw, what is asked of it, and what lasts until it is left.
class Page {
  constructor(params) { this.params = params; this.root = h("div"); this.over = new AbortController(); this.signal = this.over.signal; this.ends = []; this.draws = []; this.listeners = {}; }
  leave(f) { this.ends.push(f); }
  themed(f) { this.draws.push(f); }
  on(event, f) { (this.listeners[event] ||= []).push(f); }
  tell(event, data) { for (const f of this.listeners[event] || []) f(data); }
  // every calls f now and so often, as long as somebody looks.
  async every(ms, f) {
    const again = async () => {
      if (this.signal.aborted) return;
      if (!document.hidden) await this.guard(f);
      if (!this.signal.aborted) this.timer = setTimeout(again, ms);
    };
    await again();
    this.leave(() => clearTimeout(this.timer));
  }
  async guard(f) {
    try { await f(); this.error?.remove(); this.error = null; } catch (e) {
      if (this.signal.aborted) return;
      if (e instanceof SignedOut) return showLogin();
      if (e.name === "TimeoutError" || e instanceof TypeError) { heard = Math.min(heard, Date.now() - OLD); return tell(); }
      this.error?.remove();
      this.error = h("p", { class: "note bad", role: "alert" }, e.message);
      main.prepend(this.error);
    }
  }
  // open shows another page, which gets what does not belong into its address.
  open(path, state) { history.pushState(state, "", path); show(true); }
  // zoom shows the minutes between two times on the whole page.
  zoom(from, to) {
    const u = new URL(location), until = Math.ceil(to / 60) * 60;
    u.searchParams.set("until", until);
    u.searchParams.set("range", Math.max(1, Math.round((until - from) / 60)) + "m");
    history.pushState(history.state, "", u); show();
  }
  end() { this.over.abort(); for (const f of this.ends) f(); }
}

function showNav() {
  nav.replaceChildren(...Object.entries(pages).filter(([path]) => path !== "/key").map(([path, p]) => {
    const { rule, range, until } = Object.fromEntries(page.params);
    return link(path, { rule: path === "/rule" ? rule : "", range, until }, { "aria-current": path === location.pathname ? "page" : undefined }, p.title);
  }));
  // On a phone the row of pages is wider than the screen.
  const here = nav.querySelector("[aria-current]");
  if (here && nav.scrollWidth > nav.clientWidth) nav.scrollLeft = here.offsetLeft - (nav.clientWidth - here.offsetWidth) / 2;
}

async function show(focus) {
  page?.end();
  const kind = pages[location.pathname] || now;
  page = new Page(new URLSearchParams(location.search));
  document.title = kind.title + " · Headgate";
  document.body.classList.remove("signedout");
  showNav();
  main.replaceChildren(gone, page.root);
  if (focus) { main.focus({ preventScroll: true }); window.scrollTo(0, 0); }
  const mine = page;
  await mine.guard(() => kind.show(mine));
  if (page === mine && last) mine.tell("tick", last);
  main.dataset.shown = location.pathname;
  connect();
}

// connect opens the one stream of this page: with denials where they are looked at.
function connect() {
  const denials = !!page?.listeners.denial;
  if (document.hidden) return hush();
  if (stream && stream.denials === denials && stream.readyState !== EventSource.CLOSED) return;
  hush();
  stream = new EventSource("/api/stream" + (denials ? "?denials=true" : ""));
  stream.denials = denials;
  stream.addEventListener("tick", (e) => { last = JSON.parse(e.data); heard = Date.now(); tell(); page?.tell("tick", last); });
  for (const event of ["denial", "lost"]) stream.addEventListener(event, (e) => page?.tell(event, JSON.parse(e.data)));
}
function hush() { stream?.close(); stream = null; }

// tell says in words how it is.
let told = "";
function tell() {
  const old = Date.now() - heard >= OLD && page && !document.hidden;
  gone.hidden = !old;
  if (old) gone.textContent = "The server does not answer" + (last ? " since " + clock(last.now) : "") + ". What is shown is old.";
  if (!last && !old) return;
  const away = last?.instances.filter((i) => !i.ok) || [], shut = last?.instances.filter((i) => i.store && i.store !== "ok") || [], full = last?.minutes[0] || { allowed: 0, denied: 0 }, sum = all(full), some = (list) => (list.length < last.instances.length ? " " + list.map((i) => i.name).join(", ") : "");
  const versions = new Set(last?.instances.filter((i) => i.ok).map((i) => i.hash)), of = (state) => shut.filter((i) => i.store === state);
  let kind = "good", text = "All is well";
  if (old) [kind, text] = ["bad", "The server does not answer"];
  else if (of("open").length) [kind, text] = ["bad", "The store does not answer" + some(of("open"))];
  else if (full.failed) [kind, text] = ["bad", percent(full.failed, sum) + " got no answer in the last minute"];
  else if (of("half_open").length) [kind, text] = ["warn", "The store is coming back"];
  else if (of("learning").length) [kind, text] = ["warn", "The store has lost its data"];
  else if (last.slow) [kind, text] = ["warn", "The store is slow: p99 is " + last.slow];
  else if (away.length) [kind, text] = ["warn", plural(away.length, "instance") + (away.length === 1 ? " does" : " do") + " not answer"];
  else if (last.reload) [kind, text] = ["warn", "The last reload has failed"];
  else if (versions.size > 1) [kind, text] = ["warn", "Instances have different policies"];
  else if (sum >= 20 && full.denied / sum >= 0.1) [kind, text] = ["warn", percent(full.denied, sum) + " denied in the last minute"];
  else if (!sum && !all(last.minutes.at(-1))) [kind, text] = ["idle", "No requests"];
  status.className = "status " + kind;
  if (told !== text) words.textContent = told = text;
  if (last) swap(facts, h("span", { class: "opt" }, "Instances ", h("b", null, num(last.instances.length - away.length) + (away.length ? " of " + num(last.instances.length) : ""))), h("span", null, "Policy ", h("b", null, "version " + num(last.version))), h("span", null, "As of ", h("b", null, clock(last.now))));
}
setInterval(tell, 2000);

function showLogin() {
  page?.end(); page = null; hush(); last = null; tell();
  document.body.classList.add("signedout");
  document.title = "Sign in · Headgate";
  const field = h("input", { type: "password", name: "token", autocomplete: "current-password", required: true, id: "token" });
  const problem = h("p", { class: "bad", role: "alert" });
  main.dataset.shown = "login";
  main.replaceChildren(h("div", { class: "login" }, h("h1", null, "Sign in"), h("p", { class: "soft" }, "With the admin token that the server was started with."),
    h("form", { onsubmit: async (e) => {
      e.preventDefault();
      try { await send("POST", "/session", { token: field.value }); problem.textContent = ""; await begin(); } catch (wrong) { problem.textContent = wrong.message; field.select(); }
    } }, h("label", { for: "token" }, "Admin token", field), problem, h("button", { class: "main" }, "Sign in"))));
  field.focus();
}

async function begin() {
  try {
    const session = await send("GET", "/session");
    needed = session.token_needed; known.history = session.history;
    document.getElementById("leave").hidden = !needed || !session.signed_in;
    if (!session.signed_in) return showLogin();
    await show();
  } catch { main.replaceChildren(h("p", { class: "note bad", role: "alert" }, "The server does not answer.")); setTimeout(begin, 3000); }
}

document.addEventListener("click", (e) => {
  const a = e.target.closest?.("a[data-link]");
  if (!a || e.defaultPrevented || e.button || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
  e.preventDefault();
  // Only the document of the Lab may run WebAssembly, so that it is another one.
  if ((a.pathname === "/lab") !== (location.pathname === "/lab")) { location.href = a.href; return; }
  const same = a.pathname === location.pathname;
  history.pushState(null, "", a.href);
  show(!same);
});
addEventListener("popstate", () => page && show(true));
document.addEventListener("visibilitychange", () => { heard = Date.now(); if (page) connect(); });
document.getElementById("leave").addEventListener("click", async () => { await send("DELETE", "/session").catch(() => {}); document.getElementById("leave").hidden = true; showLogin(); });
const dark = matchMedia("(prefers-color-scheme: dark)");
const redraw = () => page?.draws.forEach((f) => f());
dark.addEventListener("change", redraw);
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement, is = root.dataset.theme || (dark.matches ? "dark" : "light");
  root.dataset.theme = is === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* Storage may be off. */ }
  redraw();
});
begin();
