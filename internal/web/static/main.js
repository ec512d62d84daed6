// SPDX-License-Identifier: Apache-2.0
// Asks the process for its counters, about once a second while somebody looks, and writes what has changed.

import { children, element, write, writeState, attribute } from "./dom.js";
import { ago, clock, since } from "./format.js";
import { countersOf, Flow, Way } from "./flow.js";
import { Panels } from "./panels.js";
import { Rates } from "./rates.js";
import { Wrong } from "./wrong.js";

// period is the time between an answer and the next request, patience how long an answer may take: in milliseconds.
const period = 1000;
const patience = 12000;

// An answer that takes long is asked for seldom, so that a page costs the machine little whatever there is to count: after so many
// times as long, and at most after longestPause.
const statusPause = 4;
const pause = 15;
const longestPause = 30000;

// routePeriod is how often the routes are counted. Whether the mirror is current is in the status.
const routePeriod = 60000;

const at = (id) => document.getElementById(id);
const rates = { status: new Rates(), filter: new Rates(), lb: new Rates() };
const wrong = new Wrong();
const panels = new Panels(at("left"), at("right"));
const flow = new Flow(at("flow"), (name) => {
  only = name;
  if (last) draw(last);
}, (stage, end) => [...stages].some(([key, of]) => of === stage && end.verdicts.includes(key.slice(0, key.indexOf("|")))));

let only = ""; // the interface that is looked at, "" for all
let last; // the last answers
let stages = new Map(); // by verdict and reason
let endedTop; // the answer of the filter whose talkers nobody looks at any more
let version; // of the process, undefined until it has been asked
let answeredAt; // when the process has answered last, by this browser's clock
let silent = false;
let busy = ""; // why the process does not answer, if it says so

// get asks for a path. It returns undefined if the data plane does not have what the path is about.
async function get(path, optional) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(patience) });
  const body = await answer.json();
  if (optional && answer.status === 404) return undefined;
  if (!answer.ok) throw new Refused(path, body.error ?? `status ${answer.status}`, answer.status);
  return { body, clock: Number(answer.headers.get("Culvert-Clock")), now: Date.parse(answer.headers.get("Date")) };
}

// Refused is an answer that says why there is none.
class Refused extends Error {
  constructor(path, text, status) {
    super(text);
    this.path = path;
    this.busy = status === 503;
  }
}

// kept has the last answer of each path, and when it is to be asked for again.
const kept = new Map();

// more asks for a path, if that is wanted and its time has come; otherwise it returns the answer before. Errors are put into failed.
async function more(wanted, path, failed, least = 0) {
  if (!wanted) {
    kept.delete(path);
    return undefined;
  }
  const before = kept.get(path);
  const begin = performance.now();
  if (before && begin < before.next) {
    if (before.failed) failed.push(before.failed);
    return before.answer;
  }
  const now = {};
  try {
    now.answer = await get(path, true);
  } catch (e) {
    if (!(e instanceof Refused)) throw e;
    now.failed = { path, error: e.message };
    failed.push(now.failed);
  }
  const end = performance.now();
  now.next = end + Math.max(least, Math.min(pause * (end - begin) - period, longestPause));
  kept.set(path, now);
  return now.answer;
}

// look asks for all that the data plane has.
async function look() {
  if (version === undefined) {
    const [reasons, v] = await Promise.all([get("/v1/reasons"), get("/v1/version")]);
    stages = new Map();
    for (const r of reasons.body.reasons) {
      if (r.stage !== "decap") stages.set(`${r.verdict}|${r.reason}`, r.stage);
    }
    version = v.body.version;
  }
  const begin = performance.now();
  let status;
  try {
    status = await get("/v1/status");
  } catch (e) {
    if (!(e instanceof Refused) || e.busy) throw e;
    return { status: {}, router: undefined, refused: e.message, failed: [], rates, now: Date.now(), version };
  }
  statusTime = performance.now() - begin;
  const router = status.body.routers[0];
  const failed = [];
  const [filter, lb, route] = await Promise.all([
    more(router, "/v1/filter", failed), more(router?.lb, "/v1/lb", failed), more(router?.route, "/v1/route", failed, routePeriod),
  ]);
  const top = await more(filter?.body.top && filter !== endedTop, "/v1/filter/top", failed);
  if (!top) endedTop = filter; // the filter is asked for seldom if that takes long, and would say for a while that somebody looks
  take(rates.status, status, router ? statusCounters(status.body, router) : new Map(), ["links", "decap", "sflow", ...(router?.interfaces ?? []).map((i) => i.interface)]);
  take(rates.filter, filter, filterCounters(filter?.body), ["filter"]);
  take(rates.lb, lb, balancerCounters(lb?.body), (lb?.body.vips ?? []).map((v) => v.vip));
  return {
    status: status.body, router, filter: filter?.body, lb: lb?.body, route: route?.body, top: top?.body, failed, rates, now: status.now, clock: status.clock, version,
  };
}

function take(of, answer, counters, groups) {
  if (!answer) of.forget();
  else if (answer.clock !== of.clock) of.take(answer.clock, counters, groups); // otherwise it is the answer before
}

// forget leaves the next answers without rates.
function forget() {
  for (const r of Object.values(rates)) r.forget();
  kept.clear();
}

function statusCounters(status, router) {
  const all = countersOf(router);
  for (const l of router.links) {
    all.set(`link|${l.link}|in`, l.in.packets);
    all.set(`link|${l.link}|out`, l.out.packets);
    all.set(`link|${l.link}|dropped`, l.dropped);
  }
  for (const d of status.decap ?? []) {
    all.set(`decap|${d.interface}`, d.reasons.filter((r) => r.verdict === "decap").reduce((n, r) => n + r.packets, 0));
  }
  if (router.sflow) {
    all.set("sflow|sampled", router.sflow.sampled_packets);
    all.set("sflow|lost", router.sflow.lost_samples);
  }
  return all;
}

function filterCounters(filter) {
  const all = new Map();
  for (const r of filter?.rules ?? []) {
    all.set(`rule|${r.rule}`, r.packets);
    if (r.over) all.set(`rule|${r.rule}|over`, r.over.packets);
  }
  return all;
}

function balancerCounters(lb) {
  const all = new Map();
  for (const v of lb?.vips ?? []) {
    all.set(`vip|${v.vip}|untracked`, v.events.untracked ?? 0);
    for (const b of v.backends) {
      for (const what of ["packets", "bytes", "flows"]) all.set(`vip|${v.vip}|${b.backend}|${what}`, b[what]);
    }
  }
  return all;
}

// draw writes answers.
function draw(a) {
  const way = new Way(a.router ?? { interfaces: [] }, rates.status, stageOf, a.router?.interfaces.some((i) => i.interface === only) ? only : "");
  drawHead(a);
  drawProblems(silent ? [gone()] : wrong.of(a, only && a.router ? new Way(a.router, rates.status, stageOf, "") : way, a.now));
  attribute(document.body, "data-router", String(a.router !== undefined));
  if (!a.router) return;
  flow.show(way, stagesOf(a.router, way), only, a.clock, rates.status.seconds);
  panels.show(a, way, only);
}

function stageOf(verdict, reason) {
  return stages.get(`${verdict}|${reason}`) ?? "core";
}

// stagesOf returns the stages to draw: those that are on, and those that have counted packets.
function stagesOf(router, way) {
  const on = { filter: router.filter, lb: router.lb, scion: router.links.length > 0, route: router.route };
  const counted = new Set([...way.reasons.values()].map((r) => r.stage));
  return [...Object.keys(on).filter((s) => on[s] || counted.has(s)), "core"];
}

function drawHead(a) {
  const r = a.router;
  const name = r?.router ?? "";
  const host = a.status.host ?? "";
  write(at("name"), name);
  write(at("host"), host && `on ${host}`);
  const title = `${silent ? "✕ " : ""}${[host, name].filter((t) => t).join(": ")} – culvert`;
  if (document.title !== title) document.title = title;
  const facts = [
    ["version", a.version], ["mode", r?.mode],
    ["process", r?.pid ? `${r.pid}${r.config?.started_at ? `, up ${ago(since(r.config.started_at, a.now))}` : ""}` : undefined],
    ["program", r?.loaded_at ? `loaded ${ago(since(r.loaded_at, a.now))} ago` : undefined],
    ["file", r?.config?.file], ["workers", r?.workers ? `CPUs ${r.workers.cpus.join(", ")}` : undefined],
    ["capture", r?.capture && !r.capture.left_over ? `${r.capture.expression || "all packets"}, by ${capturer(r)}` : undefined],
  ].filter(([, value]) => value);
  children(at("facts"), facts, ([title]) => title, ([title]) => element("div", {}, element("dt", {}, title), element("dd")),
    (e, [, value]) => write(e.lastChild, value));
  write(at("note"), r?.config?.web?.open ? `The page is open to whoever reaches ${r.config.web.listen}: it has no password.` : "");
}

// capturer says who captures.
function capturer(r) {
  if (r.capture.pid === undefined) return "another process";
  return r.capture.pid === r.pid ? "a client of the socket" : `process ${r.capture.pid}`;
}

function drawProblems(problems) {
  const all = problems.length ? problems : [{ key: "nothing", kind: "good", text: "Nothing that this page can see." }];
  const worst = all[0].kind;
  attribute(at("wrong"), "data-state", worst);
  children(at("problems"), all, (p) => p.key, () => {
    const e = element("li");
    e.kind = element("span");
    e.what = element("span", { class: "what" });
    e.command = element("code");
    e.append(e.kind, e.what, e.command);
    return e;
  }, (e, p) => {
    writeState(e.kind, p.kind, { bad: "FAILS", warn: "WARNS", good: "OK" }[p.kind]);
    write(e.what, p.text);
    e.command.hidden = !p.command;
    write(e.command, p.command ?? "");
  });
}

// gone is the problem that the process does not answer.
function gone() {
  const why = busy || "the process has ended, it has no page any more, or this browser does not reach the machine";
  return {
    key: "gone", kind: "bad", command: unitCommand(last?.router?.config?.file),
    text: `No answer${answeredAt ? " since " + clock(answeredAt) : ""}: ${why}. If the machine is up, packets go on by the data plane as it was left. ` +
      "This page goes on when the process answers again.",
  };
}

// unitCommand is what tells on the machine about a process with a configuration: those of the units are in /etc/culvert.
function unitCommand(file) {
  const name = /^\/etc\/culvert\/([^/]+)\.toml$/.exec(file ?? "")?.[1];
  if (!name) return "culvert status";
  return name === "culvert" ? "systemctl status culvert" : `systemctl status culvert@${name}`;
}

// drawLive says whether the process answers.
function drawLive(error) {
  silent = error !== undefined;
  busy = error instanceof Refused ? error.message : "";
  attribute(document.body, "data-silent", silent);
  const e = at("live");
  if (!silent) {
    writeState(e, "good", `live, ${clock(answeredAt)}`);
  } else {
    writeState(e, "bad", answeredAt ? `no answer since ${clock(answeredAt)}` : "no answer");
    attribute(e, "title", error.message);
  }
}

let timer;
let asking = false;
let statusTime = 0; // how long the status has taken last, in milliseconds

// turn asks once and draws, and comes back.
async function turn() {
  if (asking || document.hidden) return;
  asking = true;
  clearTimeout(timer);
  let error;
  try {
    last = await look();
    answeredAt = new Date();
  } catch (e) {
    error = e;
    version = undefined; // another one may answer next
    forget();
  }
  asking = false;
  drawLive(error);
  if (last) draw(last);
  else if (error) drawProblems([gone()]);
  if (!document.hidden) timer = setTimeout(turn, Math.max(period, Math.min(statusPause * statusTime, longestPause)));
}

// A page that nobody sees asks for nothing. What it has counted meanwhile would be a rate over a long time.
document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  if (!document.hidden) {
    forget();
    turn();
  }
});

turn();
