// SPDX-License-Identifier: Apache-2.0
// The rates of counters, from two reads of them.

// Rates keeps the counters of one path of the interface for programs, as they were read last.
export class Rates {
  constructor() {
    this.forget();
  }

  // forget leaves the next read without rates.
  forget() {
    this.clock = undefined;
    this.now = new Map();
    this.before = new Map();
    this.known = new Set();
    this.seconds = 0;
  }

  // take takes a read of counters, a map of names to values, at a clock in seconds. groups are the things that have the counters: a
  // counter that appears in a group which was there before has counted from 0.
  take(clock, counters, groups) {
    this.seconds = this.clock === undefined ? 0 : clock - this.clock;
    if (this.seconds < 0) this.seconds = 0; // the machine was started again
    this.before = this.now;
    this.knownBefore = this.known;
    this.clock = clock;
    this.now = counters;
    this.known = new Set(groups);
  }

  // of returns the rate of a counter per second, undefined if it is not known yet. A counter that is smaller than before belongs
  // to a data plane that was attached anew.
  of(name, group) {
    if (!this.seconds || !this.now.has(name)) return undefined;
    if (!this.before.has(name) && !this.knownBefore.has(group)) return undefined;
    const now = this.now.get(name);
    const before = this.before.get(name) ?? 0;
    return (now < before ? now : now - before) / this.seconds;
  }
}

// sum adds rates, of which some may not be known. It is not known if none is.
export function sum(rates) {
  let all;
  for (const r of rates) {
    if (r !== undefined) all = (all ?? 0) + r;
  }
  return all;
}
