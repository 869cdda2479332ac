// The grade chart: a bar for each target, a line for its interval, and the borders of the grades.

import { element, gradeMark, interval, number, settle, svg } from "./draw.js";

const BORDERS = [30, 50, 70, 100];
const WIDTH = 1000;
const LEAST_END = 120;
const SHOWN = 40;
// Half of what a mark takes with the space beside it: "100 tok/s", "70", and all of "0".
const [LAST_PX, MARK_PX, ZERO_PX] = [34, 12, 12];

/** @param {HTMLElement} box @param {any[]} rows in the order of the table */
export function drawGrades(box, rows) {
  const known = rows.filter((row) => row.speed_total.v !== null).slice(0, SHOWN);
  const end = Math.max(LEAST_END, ...known.map((row) => row.speed_total.hi));
  const x = (/** @type {number} */ value) => ((WIDTH * value) / end).toFixed(1);
  const axis = element("div", "scale", ...marksOf(box, end).map((border) => {
    const mark = element("span", "", border === 100 ? "100 tok/s" : String(border));
    mark.style.left = `${(100 * border) / end}%`;
    return mark;
  }));
  const head = element("div", "grade-row", element("span", ""), axis, element("span", ""), element("span", ""));
  settle(box, [head, ...known.map((row) => bar(row, x))]);
  return known.length > 0;
}

/** The borders that have room for their numbers beside the ends. @param {HTMLElement} box @param {number} end */
function marksOf(box, end) {
  const width = box.querySelector(".scale")?.clientWidth || box.clientWidth / 2;
  const [last, ...others] = [...BORDERS].reverse();
  let next = ((width * last) / end) - LAST_PX; // where the words of the last border begin
  const kept = [last];
  for (const border of others) {
    const at = (width * border) / end;
    if (at + MARK_PX > next || at - MARK_PX < ZERO_PX) continue;
    kept.unshift(border);
    next = at - MARK_PX;
  }
  return [0, ...kept];
}

/** @param {any} row @param {(value: number) => string} x */
function bar(row, x) {
  const { v, lo, hi } = row.speed_total;
  const title = `${row.target}: ${interval(row.speed_total, "tok/s")}`;
  const picture = svg(
    "svg", { viewBox: `0 0 ${WIDTH} 24`, preserveAspectRatio: "none", class: "grade-bar", role: "img" },
    svg("title", {}, title),
    svg("rect", { x: 0, y: 5, width: x(v), height: 14, class: `f${Number.parseInt(row.grade, 10)}` }),
    ...BORDERS.map((border) => svg("line", { x1: x(border), x2: x(border), y1: 0, y2: 24, class: "grid" })),
    svg("path", { d: `M${x(lo)} 12H${x(hi)}M${x(lo)} 8v8M${x(hi)} 8v8`, class: "whisker" }),
  );
  const name = element("span", "grade-name", row.target);
  name.title = row.target;
  return element("div", "grade-row", name, picture, element("span", "grade-value", number(v)), gradeMark(row.grade));
}
