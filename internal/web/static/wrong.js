// SPDX-License-Identifier: Apache-2.0
// What is wrong now: from the answers alone, in the words of 'culvert status' and 'culvert doctor'.

import { clock, short, since } from "./format.js";

// quietFor is how long something that has stopped is still shown, in milliseconds.
const quietFor = 30000;

// Wrong remembers what counters have told, so that it can be read before it goes.
export class Wrong {
  constructor() {
    this.seen = new Map();
  }

  // of returns the problems, the worst first: {key, kind, text, command}. a has the answers, now is the server's time of day.
  of(a, way, now) {
    const found = [];
    const add = (kind, key, text, command) => found.push({ kind, key: kind + key, text, command });
    const router = a.router;
    if (!router) {
      add("bad", "none", a.refused ?? "There is no data plane: nothing is attached.", "culvert status");
      return found;
    }
    statusProblems(a, router, now, add);
    if (a.lb) balancerProblems(a.lb, add);
    for (const rule of a.filter?.rules ?? []) {
      if (rule.not_attached?.length) add("warn", "rule" + rule.rule, `Rule ${rule.rule} sees nothing of ${rule.not_attached.join(", ")}, which does not carry the data plane.`);
    }
    for (const path of a.failed) add("warn", "path" + path.path, `${path.path} has no answer: ${path.error}`);
    this.counted(a, way, now, add);
    const order = { bad: 0, warn: 1 };
    return found.sort((x, y) => order[x.kind] - order[y.kind]);
  }

  // counted adds what counters tell: while they count, and a while after.
  counted(a, way, now, add) {
    const note = (kind, key, rate, text, command, unit = "packets") => {
      if (rate > 0) this.seen.set(key, { kind, at: now, text: `${text}: ${short(rate)} ${unit}/s.`, command });
    };
    note("warn", "sflow lost", a.rates.status.of("sflow|lost", "sflow"), "There is no room for samples of sFlow, and they are lost", "culvert status", "samples");
    for (const r of way.reasons.values()) {
      if (r.verdict === "lost") note("bad", r.key, r.rate, `Packets are lost after their verdict (${r.name}: ${r.text})`, "culvert doctor");
      if (r.verdict === "limited") note("bad", r.key, r.rate, `The slow path's limit is reached, and packets over it are dropped (${r.name}: ${r.text})`, "culvert watch");
      if (troubles.has(r.key)) note("bad", r.key, r.rate, `Packets have no backend or no way to it (${r.name}: ${r.text})`, "culvert lb show");
    }
    for (const rule of a.filter?.rules ?? []) {
      if (rule.over) note("warn", "over" + rule.rule, a.rates.filter.of(`rule|${rule.rule}|over`, "filter"), `Rule ${rule.rule} drops what is over its rate`);
    }
    for (const vip of a.lb?.vips ?? []) {
      note("warn", "untracked" + vip.vip, a.rates.lb.of(`vip|${vip.vip}|untracked`, vip.vip), `Flows of ${vip.vip} find no room in the flow table, or come too fast for it`);
    }
    for (const [key, s] of this.seen) {
      if (now - s.at > quietFor) {
        this.seen.delete(key);
      } else {
        add(s.kind, key, s.at === now ? s.text : `${s.text} Last at ${clock(new Date(s.at))}.`, s.command);
      }
    }
  }
}

// troubles are the reasons for which a VIP is of no use to a client.
const troubles = new Set(["drop|lb-next-hop", "drop|lb-empty", "pass|lb-empty"]);

function statusProblems(a, r, now, add) {
  if (r.problem) add("bad", "problem", r.problem);
  if (!r.served) add("bad", "served", "No process serves the data plane.", "culvert run");
  if (r.starting) add("warn", "starting", "A start is going on: it is not attached to anything yet.");
  for (const s of r.stages ?? []) {
    if (s.state === "out") add("bad", "stage" + s.stage, `Stage ${s.stage} is OUT: ${s.why}`, "culvert reload");
    if (s.state === "starting") add("warn", "stage" + s.stage, `Stage ${s.stage} is starting: it has not read yet what it follows.`);
    if (s.short) add("warn", "short" + s.stage, `Stage ${s.stage} is too small: ${s.short}`);
  }
  configProblems(r.config, now, add);
  const off = { gone: "it does not exist", replaced: "it was deleted and made again", detached: "it was detached" };
  for (const u of r.unattached ?? []) {
    add("bad", "off" + u.interface, `Interface ${u.interface} is not attached: ${u.renamed ? `it was renamed to ${u.renamed}` : u.moved ? "it is in another network namespace" : off[u.why] ?? u.why}.`);
  }
  for (const i of r.interfaces) {
    if (i.state === "down") add("bad", "if" + i.interface, `Interface ${i.interface} is down.`, `ip link set dev ${i.renamed ?? i.interface} up`);
    if (i.state === "no carrier") add("bad", "if" + i.interface, `Interface ${i.interface} has no carrier.`);
    for (const f of i.peer ?? []) add("bad", "peer" + i.interface + f.finding, `${i.interface}: ${f.finding}`, f.command);
  }
  for (const l of r.links) {
    if (!l.up) add("bad", "link" + l.link, `Link ${l.link} to ${l.remote ?? "the hosts"} is down.`, l.remote ? `ping ${hostOf(l.remote)}` : "culvert doctor");
    else if (!l.next_hop && l.scope !== "internal") add("warn", "hop" + l.link, `Link ${l.link} to ${l.remote} has no next hop.`);
  }
  if (r.links.length > 0 && r.keys.length === 0) add("bad", "keys", "There is no forwarding key: the SCION router's slow path gets all packets.", "culvert key list");
  if (r.key_schedule?.ends) {
    const left = -since(r.key_schedule.ends, now);
    if (left < 86400) add(left < 0 ? "bad" : "warn", "ends", `The last forwarding key ${left < 0 ? "has ended" : "ends"} at ${r.key_schedule.ends}.`, "culvert key list");
  }
  for (const family of ["ipv4", "ipv6"]) {
    const c = r.route?.[family];
    if (c && c.by !== "mirror" && c.why) add("warn", family, `The IP router does not go by its mirror for ${family === "ipv4" ? "IPv4" : "IPv6"} (${c.by}): ${c.why}`);
  }
  if (r.route?.netfilter?.length) add("warn", "netfilter", `Forwarded packets go past rules of netfilter (${r.route.netfilter.map((f) => `${f.backend} ${f.table} ${f.chain}`).join(", ")}).`, "culvert doctor");
  if (r.capture?.left_over) add("warn", "capture", "A capture was killed and has left its programs.", "culvert capture -n 1");
  for (const d of a.status.decap ?? []) {
    if (d.unattached) add("bad", "decap" + d.interface, `Tunnels do not end on ${d.interface} any more: it is ${d.unattached}.`, `culvert lb decap add ${d.interface}`);
  }
  const sflow = r.sflow?.process;
  if (sflow?.error) add("warn", "sflow", `The sFlow collector ${sflow.collector} gets nothing: ${sflow.error}.`, "culvert doctor");
  // Others of this machine are not what this page is about.
  for (const s of (a.status.slow_path_only ?? []).filter((p) => p.here)) add("bad", "slow" + s.router, `SCION router ${s.router} runs without a data plane.`, "culvert doctor");
}

// hostOf returns the host of an address with a port.
function hostOf(address) {
  return address.slice(0, address.lastIndexOf(":")).replace(/^\[|\]$/g, "");
}

function configProblems(c, now, add) {
  if (!c) return;
  if (c.until) add("warn", "until", `The configuration goes back to the one before in ${Math.max(-since(c.until, now), 0).toFixed(0)} s.`, "culvert reload --keep");
  const r = c.reload;
  if (r && !r.ok && r.not_kept) add("warn", "reload", `The configuration went back to the one before: ${r.error}`);
  if (r && !r.ok && !r.not_kept) add("bad", "reload", `The last reload was refused: ${r.error}`, `culvert check -c ${c.file}`);
  if (c.differs.length > 0) {
    const more = c.differs.length > 3 ? ` and ${c.differs.length - 3} more files` : "";
    add("warn", "differs", `What runs differs from the files: ${c.differs.slice(0, 3).join(", ")}${more} changed since.`, r && !r.ok ? undefined : "culvert reload --dry-run");
  }
}

function balancerProblems(lb, add) {
  for (const s of lb.bgp) {
    if (s.state !== "established") add("bad", "bgp" + s.neighbor + s.families, `The BGP session with ${s.neighbor} is not established (${s.state})${s.error ? ": " + s.error : "."}`, "culvert doctor");
    else if (s.error) add("warn", "bgp" + s.neighbor + s.families, `BGP neighbor ${s.neighbor}: ${s.error}`);
  }
  for (const v of lb.vips) {
    if (v.state === "down") add("bad", "vip" + v.vip, `VIP ${v.vip} is down: none of its backends can be used.`, "culvert lb show");
    if (v.state === "no backend") add("warn", "vip" + v.vip, `VIP ${v.vip} has no backend with a weight.`, "culvert lb show");
    if (v.state === "drained") add("warn", "vip" + v.vip, `VIP ${v.vip} is drained: it is not announced.`, `culvert lb undrain ${v.vip}`);
    for (const b of v.backends) {
      if (b.health.state === "down") add("bad", "backend" + v.vip + b.backend, `Backend ${b.backend} of ${v.vip} is down: ${b.health.why ?? "its checks fail"}.`, `culvert lb show ${v.vip}`);
      else if (b.problem) add("bad", "backend" + v.vip + b.backend, `Backend ${b.backend} of ${v.vip} cannot be sent to: ${b.problem}${b.obstacle ? ": " + b.obstacle : ""}.`, "culvert doctor");
    }
  }
}
