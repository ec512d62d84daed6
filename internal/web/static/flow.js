// SPDX-License-Identifier: Apache-2.0
// The packets' way through the pipeline: from the interfaces through the stages to where packets go, with a rate on every arrow.

import { attribute, children, element, write, writeState } from "./dom.js";
import { bits, grouped, short } from "./format.js";
import { sum } from "./rates.js";

// ends are where packets go, with the words of 'culvert watch'. Those that are over the limit of a slow path are dropped.
export const ends = [
  { end: "out", title: "out", verdicts: ["fwd"], about: "sent on by the fast path, or answered by it" },
  { end: "slow", title: "slow path", verdicts: ["punt"], about: "to the slow path of the stage: the SCION router's own, or the kernel's" },
  { end: "kernel", title: "kernel", verdicts: ["pass"], about: "to the kernel's network stack, as without culvert" },
  { end: "drop", title: "drop", verdicts: ["drop", "limited"], about: "dropped, with a reason" },
];

// stageTitles are what the stages are called. core has what no stage claims.
export const stageTitles = {
  filter: ["filter", "packet filter"], lb: ["lb", "load balancer"], scion: ["scion", "SCION router"], route: ["route", "IP router"],
  core: ["rest", "claimed by none"],
};

// outcome is the verdict of a reason as it is shown: "limited" for what was over the limit of the slow path.
export function outcome(reason) {
  return reason.limited ? "limited" : reason.verdict;
}

// countersOf returns the counters of a data plane's interfaces for Rates.
export function countersOf(router) {
  const all = new Map();
  for (const i of router.interfaces) {
    for (const r of i.reasons) {
      const name = `${i.interface}|${outcome(r)}|${r.reason}`;
      all.set(name, r.packets);
      all.set(name + "|bytes", r.bytes);
    }
    for (const [name, n] of Object.entries(i.losses)) all.set(`${i.interface}|lost|${name}`, n);
  }
  return all;
}

// Way is what is on the arrows: of all interfaces, or of one.
export class Way {
  // rates has the counters of countersOf. stageOf tells the stage of a reason by verdict and name.
  constructor(router, rates, stageOf, only) {
    this.interfaces = router.interfaces.map((i) => {
      const names = i.reasons.map((r) => `${i.interface}|${outcome(r)}|${r.reason}`);
      return {
        name: i.interface, attached: i.attached, state: i.state, packets: i.packets, bytes: i.bytes,
        rate: i.attached && names.length === 0 ? (rates.seconds ? 0 : undefined) : sum(names.map((n) => rates.of(n, i.interface))),
        byteRate: sum(names.map((n) => rates.of(n + "|bytes", i.interface))),
      };
    });
    this.reasons = new Map(); // by outcome and name, over the interfaces
    for (const i of router.interfaces) {
      if (only && i.interface !== only) continue;
      for (const r of i.reasons) {
        const o = outcome(r);
        this.add(o, r.reason, stageOf(r.verdict, r.reason), r.text, r.packets, r.bytes,
          rates.of(`${i.interface}|${o}|${r.reason}`, i.interface), rates.of(`${i.interface}|${o}|${r.reason}|bytes`, i.interface));
      }
      for (const [name, n] of Object.entries(i.losses)) {
        if (n > 0) this.add("lost", name, "", lossTexts[name], n, undefined, rates.of(`${i.interface}|lost|${name}`, i.interface));
      }
    }
    this.known = rates.seconds > 0;
  }

  add(verdict, name, stage, text, packets, bytes, rate, byteRate) {
    const key = `${verdict}|${name}`;
    const r = this.reasons.get(key) ?? { key, verdict, name, stage, text, packets: 0, bytes: undefined };
    r.packets += packets;
    r.bytes = bytes === undefined ? r.bytes : (r.bytes ?? 0) + bytes;
    r.rate = sum([r.rate, rate]);
    r.byteRate = sum([r.byteRate, byteRate]);
    this.reasons.set(key, r);
  }

  // total returns packets and rates of the reasons that are selected.
  total(select) {
    const chosen = [...this.reasons.values()].filter(select);
    const all = { packets: 0, rate: this.known ? 0 : undefined, byteRate: this.known ? 0 : undefined };
    for (const r of chosen) {
      all.packets += r.packets;
      all.rate = sum([all.rate, r.rate]);
      all.byteRate = sum([all.byteRate, r.byteRate]);
    }
    return all;
  }

  // received is what has come in and got a verdict.
  received() {
    return this.total((r) => r.verdict !== "lost");
  }

  // exit is what leaves a stage to an end.
  exit(stage, end) {
    return this.total((r) => r.stage === stage && end.verdicts.includes(r.verdict));
  }

  // arriving is what reaches a stage: all but what stages in front of it have decided about.
  arriving(before) {
    return this.total((r) => r.verdict !== "lost" && !before.includes(r.stage));
  }

  lost() {
    return this.total((r) => r.verdict === "lost");
  }
}

// lossTexts say what the names of losses mean: docs/metrics.md.
export const lossTexts = {
  redirect: "forwarded, and lost on the way to the other interface: its queue is full, it is down, or it takes no redirected frames",
  transmit: "forwarded by the interface that it came in by, and lost: its queue is full",
  exception: "the program ended with a verdict that the driver does not know or could not carry out",
  worker: "forwarded by a worker, and lost on the way out",
  "worker-queue": "lost before a verdict: the queue of a worker CPU was full",
};

// weight returns how heavy an arrow is drawn, by the order of magnitude of its rate: 0 to 1.
function weight(rate) {
  return rate > 0 ? Math.min(Math.log10(1 + rate) / 7, 1) : 0;
}

// arrow writes a rate on an arrow.
function writeArrow(e, name, value, text) {
  attribute(e, "data-arrow", name);
  attribute(e, "data-packets", String(value.packets));
  attribute(e, "data-rate", value.rate === undefined ? undefined : String(value.rate));
  attribute(e, "data-still", !(value.rate > 0));
  attribute(e, "title", `${text}: ${short(value.rate)} packets/s, ${bits(value.byteRate)}, ${grouped(value.packets)} packets in total`);
  e.style.setProperty("--weight", weight(value.rate).toFixed(3));
  write(e.number, short(value.rate));
}

function makeArrow(tag, kind) {
  const e = element(tag, { class: "arrow " + kind });
  e.number = element("span", { class: "number" });
  e.append(e.number);
  return e;
}

// Flow draws the way.
export class Flow {
  // choose is called with the name of an interface that the user has chosen, "" for all. possible tells whether packets can leave a
  // stage to an end.
  constructor(root, choose, possible) {
    this.root = root;
    this.choose = choose;
    this.possible = possible;
    this.inputs = element("fieldset", { class: "inputs" }, element("legend", {}, "interfaces"));
    this.list = element("div", { class: "list" });
    this.inputs.append(this.list);
    this.stages = element("div", { class: "stages" });
    root.append(this.inputs, this.stages);
    this.totals = this.makeTotals();
  }

  // show draws a way through stages, which are names. clock is that of the counters, and seconds the time since those before.
  show(way, stages, only, clock, seconds) {
    attribute(this.root, "data-seconds", String(seconds));
    attribute(this.root, "data-clock", clock === undefined ? undefined : String(clock));
    this.showInputs(way, only);
    this.root.style.setProperty("--stages", stages.length);
    const columns = stages.map((stage, n) => ({ stage, before: stages.slice(0, n), first: n === 0 }));
    children(this.stages, [...columns, { stage: "all" }], (c) => c.stage,
      (c) => c.stage === "all" ? this.totals : this.makeStage(c.stage), (e, c) => {
        if (c.stage === "all") {
          this.showTotals(way);
        } else {
          this.showStage(e, way, c);
        }
      });
  }

  showInputs(way, only) {
    const all = { name: "", attached: true, ...way.interfaces.reduce((a, i) => ({
      rate: sum([a.rate, i.rate]), byteRate: sum([a.byteRate, i.byteRate]), packets: a.packets + i.packets,
    }), { packets: 0 }) };
    children(this.list, [all, ...way.interfaces], (i) => i.name, (i) => {
      const radio = element("input", { type: "radio", name: "interface", value: i.name });
      radio.addEventListener("change", () => this.choose(i.name));
      const e = element("label", { class: "input" }, radio, element("span", { class: "name" }, i.name || "all"));
      e.radio = radio;
      e.state = element("span", { class: "state" });
      e.arrow = makeArrow("span", "in");
      e.append(e.state, e.arrow);
      return e;
    }, (e, i) => {
      e.radio.checked = i.name === only;
      const bad = !i.attached ? "off" : i.state && i.state !== "up" ? i.state : "";
      e.state.hidden = bad === "";
      if (bad) writeState(e.state, "bad", bad);
      writeArrow(e.arrow, `${i.name || "all"}>`, i, `received${i.name ? " by " + i.name : ""}`);
    });
  }

  makeStage(stage) {
    const [title, about] = stageTitles[stage] ?? [stage, ""];
    const e = element("div", { class: "stage", "data-stage": stage });
    e.arriving = makeArrow("div", "to");
    e.exits = element("ul", { class: "exits", "aria-label": `out of ${title}` });
    e.append(e.arriving, element("div", { class: "node" }, element("strong", {}, title), element("span", {}, about)), e.exits);
    return e;
  }

  showStage(e, way, { stage, before }) {
    const [title] = stageTitles[stage] ?? [stage];
    writeArrow(e.arriving, `>${stage}`, way.arriving(before), `reaches ${title}`);
    children(e.exits, ends, (end) => end.end, (end) => {
      const li = element("li", { class: "exit", "data-end": end.end });
      li.arrow = makeArrow("span", "leave");
      li.append(element("span", { class: "end" }, end.title), li.arrow);
      return li;
    }, (li, end) => {
      const value = way.exit(stage, end);
      attribute(li, "data-impossible", !this.possible(stage, end));
      attribute(li, "data-never", value.packets === 0);
      writeArrow(li.arrow, `${stage}>${end.end}`, value, `${title}, ${end.title}: ${end.about}`);
    });
  }

  makeTotals() {
    const e = element("div", { class: "stage totals", "data-stage": "all" });
    e.exits = element("ul", { class: "exits", "aria-label": "where packets go, of all stages" });
    e.append(element("div", { class: "node" }, element("strong", {}, "together"),
      element("span", {}, "all stages")), e.exits);
    return e;
  }

  showTotals(way) {
    const lost = { end: "lost", title: "then lost", about: "after the verdict, or in the queue of a worker" };
    children(this.totals.exits, [...ends, lost], (end) => end.end, (end) => {
      const li = element("li", { class: "exit", "data-end": end.end });
      li.arrow = makeArrow("span", "leave");
      li.bits = element("span", { class: "bits" });
      li.append(element("span", { class: "end" }, end.title), li.arrow, li.bits);
      return li;
    }, (li, end) => {
      const value = end === lost ? way.lost() : way.total((r) => end.verdicts.includes(r.verdict));
      attribute(li, "data-never", value.packets === 0);
      writeArrow(li.arrow, `all>${end.end}`, value, `${end.title}: ${end.about}`);
      write(li.bits, end === lost ? "" : bits(value.byteRate));
    });
  }
}
