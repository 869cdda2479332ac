// Axes, bands and cursors of charts: SVG by hand, drawn in the pixels that the page gives it.

import { byId, number, svg } from "./draw.js";

/** @typedef {{at: (value: number) => number, ticks: number[]}} Scale */

const MOST_TICKS = 5;

/** Round numbers between two, about as many as wanted. @param {number} low @param {number} high @param {number} wanted */
export function roundTicks(low, high, wanted) {
  const rough = (high - low) / Math.max(wanted, 1);
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = power * ([1, 2, 5, 10].find((one) => one * power >= rough) ?? 10);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(at);
  return found;
}

/** A scale from zero. @param {number} high @param {[number, number]} pixels @param {number} [wanted] @returns {Scale} */
export function linear(high, pixels, wanted = 4) {
  const top = high > 0 ? high : 1;
  return { at: (value) => pixels[0] + ((pixels[1] - pixels[0]) * value) / top, ticks: roundTicks(0, top, wanted) };
}

/** A scale of logarithms over values above zero. @param {number} low @param {number} high @param {[number, number]} pixels @returns {Scale} */
export function logarithmic(low, high, pixels) {
  const [from, to] = high > low ? [Math.log(low), Math.log(high)] : [Math.log(low) - 0.5, Math.log(low) + 0.5];
  const within = (/** @type {number[]} */ digits) => {
    const found = [];
    for (let power = Math.floor(from / Math.LN10); power <= Math.ceil(to / Math.LN10); power += 1) {
      for (const digit of digits) {
        const value = digit * 10 ** power;
        if (Math.log(value) >= from - 1e-9 && Math.log(value) <= to + 1e-9) found.push(value);
      }
    }
    return found;
  };
  // The densest that can be read; where even that is too thin, round numbers.
  const fitting = [[1, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]].map(within).find((found) => found.length <= MOST_TICKS) ?? within([1]);
  const ticks = fitting.length > 2 ? fitting : roundTicks(Math.exp(from), Math.exp(to), 3);
  return { at: (value) => pixels[0] + ((pixels[1] - pixels[0]) * (Math.log(value) - from)) / (to - from), ticks };
}

/** @param {number} value */
export function tickText(value) {
  if (value === 0) return "0";
  if (Math.abs(value) >= 1) return value.toLocaleString("en", { maximumFractionDigits: 1 });
  return value.toLocaleString("en", { maximumSignificantDigits: 2, maximumFractionDigits: 6 });
}

export const DAY_MS = 86_400_000;
const TIME_STEPS = [300_000, 900_000, 3_600_000, 3 * 3_600_000, 6 * 3_600_000, 12 * 3_600_000, DAY_MS, 2 * DAY_MS, 7 * DAY_MS, 14 * DAY_MS, 28 * DAY_MS];

/** Instants of an axis of time in UTC, with their words. @param {number} from @param {number} to @param {number} wanted */
export function timeTicks(from, to, wanted, least = 0) {
  const step = TIME_STEPS.find((one) => one >= least && (to - from) / one <= wanted) ?? TIME_STEPS[TIME_STEPS.length - 1];
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push({ at, text: timeText(at, step) });
  return found;
}

/** @param {number} at @param {number} step */
function timeText(at, step) {
  const date = new Date(at);
  const day = date.toLocaleString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
  if (step >= DAY_MS || at % DAY_MS === 0) return day;
  return date.toLocaleString("en-GB", { hour: "2-digit", minute: "2-digit", timeZone: "UTC" });
}

/** Stretches of points that all have some values; a point without them, or a hole in time, ends one. @template T @param {T[]} points @param {(point: T) => boolean} known @param {(before: T, after: T) => boolean} joined @returns {T[][]} */
export function stretches(points, known, joined) {
  /** @type {T[][]} */
  const found = [];
  /** @type {T|null} */
  let last = null;
  for (const point of points) {
    if (!known(point)) last = null;
    else {
      if (last !== null && joined(last, point)) found[found.length - 1].push(point);
      else found.push([point]);
      last = point;
    }
  }
  return found;
}

/** @param {[number, number][]} points */
export function path(points) {
  return points.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
}

/** The area between two lines. @param {[number, number][]} upper @param {[number, number][]} lower */
export function area(upper, lower) {
  return `${path(upper)}${path([...lower].reverse()).replace("M", "L")}Z`;
}

/** The grid and the numbers of an axis upwards. @param {Scale} y @param {[number, number]} x left and right @param {(value: number) => string} [text] */
export function upAxis(y, x, text = tickText) {
  return y.ticks.flatMap((value) => [
    svg("line", { x1: x[0], x2: x[1], y1: y.at(value), y2: y.at(value), class: value === 0 ? "ground" : "grid" }),
    svg("text", { x: x[0] - 8, y: y.at(value) + 4, class: "tick end" }, text(value)),
  ]);
}

/** Say something to those who listen and those who look. @param {string} id @param {string} text */
export function tell(id, text) {
  const line = byId(id);
  if (line.textContent !== text) line.textContent = text;
}

/** A number of a chart with its unit. @param {number|null} value @param {string} unit */
export function amount(value, unit) {
  return value === null ? "too few" : `${number(value)} ${unit}`;
}

/** Draw again when the width of a place changes. @param {HTMLElement} place @param {() => void} draw */
export function onWidth(place, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (place.clientWidth === width) return;
    width = place.clientWidth;
    draw();
  }).observe(place);
}

/** Leave a parameter out of the address that says what is shown anyway. @param {string} name @param {string} usual */
export function leaveOut(name, usual) {
  const asked = new URLSearchParams(location.search);
  if (asked.get(name) !== usual) return;
  asked.delete(name);
  history.replaceState(null, "", asked.size ? `?${asked}` : location.pathname);
}

/** The choices that a field offers while it is typed into. @param {string} id @param {string[]} names */
export function offerNames(id, names) {
  byId(id).replaceChildren(...[...new Set(names)].sort().map((name) => {
    const option = document.createElement("option");
    option.value = name;
    return option;
  }));
}
