// SPDX-License-Identifier: Apache-2.0
// The panels below the way: tables of what the stages do.

import { attribute, children, element, Panel, Table, write, writeState } from "./dom.js";
import { ago, bits, grouped, short, since } from "./format.js";
import { sum } from "./rates.js";

// number makes a column of numbers.
const number = (title, of) => ({ title, class: "number", write: (cell, item) => write(cell, of(item)) });
const text = (title, of, kind = "") => ({ title, class: kind, write: (cell, item) => write(cell, of(item) ?? "") });
const state = (title, of) => ({ title, class: "state-cell", write: (cell, item) => {
  cell.holder ??= cell.appendChild(element("span"));
  writeState(cell.holder, ...of(item));
} });

// named makes a column with a name, and words below it.
const named = (title, of, words) => ({ title, class: "named", write: (cell, item) => {
  if (!cell.name) {
    cell.name = element("span", { class: "name" });
    cell.words = element("span", { class: "words" });
    cell.replaceChildren(cell.name, cell.words);
  }
  write(cell.name, of(item));
  const w = words(item) ?? "";
  cell.words.hidden = w === "";
  write(cell.words, w);
} });

// Verdicts have their own words, as in 'culvert status', but for what was over the limit of a slow path.
const verdictTitles = { limited: "over limit" };
const verdictOrder = ["lost", "limited", "drop", "punt", "pass", "fwd"];

// still marks rows whose counters stand.
function dim(table, items, key, rate) {
  table.show(items, key);
  for (const item of items) attribute(table.rows.byKey.get(key(item)), "data-still", !(rate(item) > 0));
}

// Panels has all panels.
export class Panels {
  constructor(left, right) {
    this.reasons = new Panel(left, "reasons", "Verdicts and reasons");
    this.reasonTable = new Table(this.reasons.body, "Verdicts and reasons", [
      { title: "verdict", class: "verdict", write: (cell, r) => {
        cell.tag ??= cell.appendChild(element("span", { class: "tag" }));
        attribute(cell.tag, "data-verdict", r.verdict);
        write(cell.tag, verdictTitles[r.verdict] ?? r.verdict);
      } },
      named("reason", (r) => r.name, (r) => r.text),
      number("packets/s", (r) => short(r.rate)), { ...number("bit/s", (r) => r.byteRate === undefined ? "" : short(8 * r.byteRate)), class: "number wide" },
      number("packets", (r) => grouped(r.packets)),
    ]);
    this.talkers = new Panel(left, "talkers", "Talkers");
    this.talkerNote = this.talkers.body.appendChild(element("p", { class: "empty" }));
    this.talkerTable = new Table(this.talkers.body, "Talkers", [
      text("talker", (t) => t.talker, "name"), number("packets/s", (t) => short(t.rate)), number("bit/s", (t) => short(8 * t.byteRate)),
      number("share", (t) => t.share),
    ]);
    this.interfaces = new Panel(left, "interfaces", "Interfaces");
    this.interfaceTable = new Table(this.interfaces.body, "Interfaces", [
      text("interface", (i) => i.interface, "name"),
      state("state", (i) => !i.attached ? ["quiet", "not attached"] : i.state === undefined || i.state === "up" ? ["good", i.state ?? "attached"] : ["bad", i.state]),
      number("in/s", (i) => short(i.rate)), number("bit/s", (i) => short(i.byteRate === undefined ? undefined : 8 * i.byteRate)),
      number("dropped/s", (i) => short(i.dropRate)), number("lost/s", (i) => short(i.lostRate)),
    ]);
    this.links = new Panel(right, "links", "SCION links");
    this.linkTable = new Table(this.links.body, "SCION links", [
      named("link", (l) => l.link, (l) => `${l.scope}, ${l.local}${l.remote ? " to " + l.remote : ""}`),
      state("BFD", (l) => l.scope === "internal" ? ["quiet", "none"] : l.up ? ["good", "up"] : ["bad", "down"]),
      number("in/s", (l) => short(l.inRate)), number("out/s", (l) => short(l.outRate)), number("dropped/s", (l) => short(l.dropRate)),
    ]);
    this.bgp = new Panel(right, "bgp", "BGP neighbors");
    this.bgpTable = new Table(this.bgp.body, "BGP neighbors", [
      named("neighbor", (s) => s.neighbor, (s) => s.error || s.announced.join(", ")),
      state("state", (s) => [s.state === "established" ? "good" : "bad", s.state]),
      number("since", (s) => ago(s.age)), number("AS", (s) => String(s.asn)), number("announced", (s) => String(s.announced.length)),
    ]);
    this.balancer = new Panel(right, "backends", "Backends");
    this.vips = this.balancer.body.appendChild(element("div", { class: "vips" }));
    this.filter = new Panel(right, "filter", "Filter");
    this.ruleTable = new Table(this.filter.body, "Rules of the filter", [
      named("rule", (r) => r.rule, (r) => r.words + (r.from === "hand" ? " (made by hand)" : "")),
      number("packets/s", (r) => short(r.rate)), number("over/s", (r) => r.over ? short(r.overRate) : ""), number("packets", (r) => grouped(r.packets)),
    ]);
    this.serviceTable = new Table(this.filter.body, "Protected services", [
      named("protected service", (s) => s.address, (s) => s.forwarded ? "behind this host" : "of this host"), text("from", (s) => s.from),
    ]);
    this.setTable = new Table(this.filter.body, "Sets", [
      named("set", (s) => s.set, (s) => `${s.type}, ${s.rules.length ? "used by " + s.rules.join(", ") : "used by no rule"}`),
      number("entries", (s) => grouped(s.count)), number("matches/s", (s) => s.rules.length ? short(s.rate) : ""),
    ]);
    this.route = new Panel(right, "route", "IP router");
    this.routeTable = new Table(this.route.body, "IP router", [
      named("family", (f) => f.name, (f) => f.why),
      state("goes by", (f) => [f.by === "mirror" ? "good" : "warn", f.by]),
      number("prefixes", (f) => grouped(f.prefixes)), number("room used", (f) => `${(100 * f.blocks_used / Math.max(f.blocks_total, 1)).toFixed(1)}%`),
    ]);
    this.sflow = new Panel(right, "sflow", "sFlow");
    this.sflowTable = new Table(this.sflow.body, "sFlow", [
      named("collector", (s) => s.collector, (s) => s.error),
      state("state", (s) => s.error ? ["bad", "gets nothing"] : s.known ? ["good", "sent to"] : ["quiet", "not known"]),
      number("sampled/s", (s) => short(s.rate)), number("lost/s", (s) => short(s.lostRate)), number("lost", (s) => grouped(s.lost)),
    ]);
    this.decap = new Panel(right, "decap", "Ends of tunnels");
    this.decapTable = new Table(this.decap.body, "Ends of tunnels", [
      text("interface", (d) => d.interface, "name"), state("state", (d) => d.unattached ? ["bad", d.unattached] : ["good", "attached"]),
      number("taken off/s", (d) => short(d.rate)), number("packets", (d) => grouped(d.packets)),
    ]);
  }

  // show writes answers.
  show(a, way, only) {
    this.showReasons(way, only);
    this.showInterfaces(a.router, a.rates.status);
    this.showTalkers(a);
    this.showSCION(a.router, a.rates.status);
    this.showBalancer(a.lb, a.rates.lb, a.now);
    this.showFilter(a.filter, a.rates.filter, way);
    this.showRoute(a.route, a.router.route);
    this.showSFlow(a.router.sflow, a.rates.status);
    this.showDecap(a.status.decap ?? [], a.rates.status);
  }

  showReasons(way, only) {
    const all = [...way.reasons.values()].filter((r) => r.packets > 0);
    all.sort((x, y) => verdictOrder.indexOf(x.verdict) - verdictOrder.indexOf(y.verdict) || (x.name < y.name ? -1 : 1));
    dim(this.reasonTable, all, (r) => r.key, (r) => r.rate);
    this.reasons.show(true, only ? `of ${only}` : "of all interfaces");
  }

  showInterfaces(router, rates) {
    const all = router.interfaces.map((i) => {
      const of = (r, more = "") => rates.of(`${i.interface}|${r.limited ? "limited" : r.verdict}|${r.reason}${more}`, i.interface);
      const zero = rates.seconds ? 0 : undefined;
      return {
        ...i, rate: sum([zero, ...i.reasons.map((r) => of(r))]), byteRate: sum([zero, ...i.reasons.map((r) => of(r, "|bytes"))]),
        dropRate: sum([zero, ...i.reasons.filter((r) => r.verdict === "drop" || r.limited).map((r) => of(r))]),
        lostRate: sum([zero, ...Object.keys(i.losses).map((n) => rates.of(`${i.interface}|lost|${n}`, i.interface))]),
      };
    });
    dim(this.interfaceTable, all, (i) => i.interface, (i) => i.rate);
    this.interfaces.show(all.length > 0, `${all.filter((i) => i.attached).length} attached`);
  }

  showTalkers(a) {
    const top = a.top;
    const seconds = top?.seconds || 1;
    this.talkerTable.show((top?.talkers ?? []).map((t) => ({
      ...t, rate: t.packets / seconds, byteRate: t.bytes / seconds, share: `${(100 * (t.packets - t.error) / Math.max(top.packets, 1)).toFixed(1)}%`,
    })), (t) => t.talker);
    this.talkerNote.hidden = (top?.talkers.length ?? 0) > 0;
    write(this.talkerNote, top ? "no packets" : "Talkers are counted only while somebody looks at them: run 'culvert filter top' in a terminal of this machine, and they are here too.");
    this.talkers.show(a.filter?.on || top !== undefined, top ? `by ${top.by}, of the last ${top.seconds.toFixed(0)} s` : "");
  }

  showSCION(router, rates) {
    const all = router.links.map((l) => ({
      ...l, inRate: rates.of(`link|${l.link}|in`, "links"), outRate: rates.of(`link|${l.link}|out`, "links"), dropRate: rates.of(`link|${l.link}|dropped`, "links"),
    }));
    dim(this.linkTable, all, (l) => l.link, (l) => sum([l.inRate, l.outRate]));
    const keys = router.key_schedule?.next_switch ? `, next key at ${router.key_schedule.next_switch}` : "";
    this.links.show(all.length > 0, `fast path only; ${router.keys.length} ${router.keys.length === 1 ? "key" : "keys"}${keys}`);
  }

  showBalancer(lb, rates, now) {
    const sessions = (lb?.bgp ?? []).map((s) => ({ ...s, age: since(s.since, now) }));
    this.bgpTable.show(sessions, (s) => `${s.neighbor} ${s.families.join()} ${s.asn}`);
    this.bgp.show(sessions.length > 0);
    this.balancer.show(lb !== undefined, lb ? `${grouped(lb.flow_table.used)} of ${grouped(lb.flow_table.flows)} flows` : "");
    children(this.vips, lb?.vips ?? [], (v) => v.vip, (v) => {
      const e = element("div", { class: "vip" });
      e.state = element("span");
      e.about = element("span", { class: "words" });
      e.append(element("h3", {}, v.vip), e.state, e.about);
      e.table = new Table(e, `Backends of ${v.vip}`, [
        named("backend", (b) => b.backend, (b) => b.health.state === "down" ? b.health.why : b.problem || (b.drained ? "drained" : `weight ${b.weight}, ${b.share.toFixed(0)}% of the ring, ${b.encapsulation}`)),
        state("health", (b) => b.problem ? ["bad", "no way"] : b.drained ? ["quiet", "drained"] : b.weight === 0 ? ["quiet", "weight 0"] : { up: ["good", "up"], down: ["bad", "down"] }[b.health.state] ?? ["quiet", "unchecked"]),
        number("packets/s", (b) => short(b.rate)), number("bit/s", (b) => short(b.byteRate === undefined ? undefined : 8 * b.byteRate)), number("flows/s", (b) => short(b.flowRate)),
      ]);
      return e;
    }, (e, v) => {
      writeState(e.state, v.state === "active" ? "good" : v.state === "down" ? "bad" : "warn", v.state);
      write(e.about, v.announced_to.length ? `announced to ${v.announced_to.join(", ")}` : v.announce ? "announced to nobody" : "");
      const of = (b, what) => rates.of(`vip|${v.vip}|${b.backend}|${what}`, v.vip);
      dim(e.table, v.backends.map((b) => ({ ...b, rate: of(b, "packets"), byteRate: of(b, "bytes"), flowRate: of(b, "flows") })), (b) => b.backend, (b) => b.rate);
    });
  }

  showFilter(filter, rates, way) {
    const rules = (filter?.rules ?? []).map((r) => ({ ...r, rate: rates.of(`rule|${r.rule}`, "filter"), overRate: rates.of(`rule|${r.rule}|over`, "filter") }));
    dim(this.ruleTable, rules, (r) => r.rule, (r) => r.rate);
    this.serviceTable.show(filter?.services ?? [], (s) => s.address);
    this.setTable.show((filter?.sets ?? []).map((s) => ({ ...s, rate: sum(rules.filter((r) => s.rules.includes(r.rule)).map((r) => r.rate)) })), (s) => s.set);
    const cookies = way.reasons.get("fwd|filter-synack")?.rate;
    this.filter.show(filter?.on ?? false, filter?.services?.length ? `${short(cookies)} SYNs/s answered with a cookie` : "");
  }

  // showRoute has what was counted some time ago, and the state now.
  showRoute(route, now) {
    const r = route?.routers?.[0];
    this.routeTable.show(r && now ? [{ name: "IPv4", ...r.ipv4, ...now.ipv4 }, { name: "IPv6", ...r.ipv6, ...now.ipv6 }] : [], (f) => f.name);
    this.route.show(r !== undefined && now !== undefined, r ? `${grouped(r.neighbors)} neighbors known` : "");
  }

  showSFlow(s, rates) {
    const p = s?.process;
    dim(this.sflowTable, s ? [{
      collector: p?.collector ?? "not known", error: p?.error, known: p !== undefined, lost: s.lost_samples,
      rate: rates.of("sflow|sampled", "sflow"), lostRate: rates.of("sflow|lost", "sflow"),
    }] : [], () => "sflow", (one) => one.rate);
    this.sflow.show(s !== undefined, s ? `1 packet in ${grouped(s.rate)}${s.drops ? `, ${grouped(s.drops)} dropped a second at most` : ""}${p?.agent ? `, as ${p.agent}` : ""}` : "");
  }

  showDecap(all, rates) {
    this.decapTable.show(all.map((d) => ({ ...d, rate: rates.of(`decap|${d.interface}`, "decap") })), (d) => d.interface);
    this.decap.show(all.length > 0);
  }
}
