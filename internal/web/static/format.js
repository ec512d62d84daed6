// SPDX-License-Identifier: Apache-2.0
// Numbers and times as 'culvert status' and 'culvert watch' write them (internal/show/text).

// grouped writes a number with commas between thousands: 1,234,567.
export function grouped(n) {
  return String(Math.round(n)).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

// short writes a quantity with three significant digits and a decimal prefix: 999, 1.23k, 45.6M. What is not known is a dash.
export function short(v) {
  if (v === undefined || Number.isNaN(v)) return "–";
  if (v < 999.5) {
    return v > 0 && v < 9.95 && v !== Math.trunc(v) ? v.toFixed(1) : v.toFixed(0);
  }
  let n = -1;
  while (v >= 999.5 && n < 5) {
    v /= 1000;
    n++;
  }
  return v.toFixed(v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2) + "kMGTPE"[n];
}

// bits writes a rate in bytes as one in bits.
export function bits(bytesPerSecond) {
  return bytesPerSecond === undefined ? "–" : short(8 * bytesPerSecond) + "bit/s";
}

// ago writes a duration in seconds in its two largest units: 1m30s.
export function ago(seconds) {
  const s = Math.max(Math.trunc(seconds), 0);
  const two = (n) => String(n).padStart(2, "0");
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.trunc(s / 60)}m${two(s % 60)}s`;
  if (s < 86400) return `${Math.trunc(s / 3600)}h${two(Math.trunc(s / 60) % 60)}m`;
  return `${Math.trunc(s / 86400)}d${two(Math.trunc(s / 3600) % 24)}h`;
}

// since returns the age of a time of an answer, in seconds. now is the server's time of day, in milliseconds.
export function since(time, now) {
  return (now - Date.parse(time)) / 1000;
}

// clock writes a time of day: 03:12:45.
export function clock(date) {
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((n) => String(n).padStart(2, "0")).join(":");
}
