// Tables: heads that sort, rows that keys walk through.

import { element } from "./draw.js";
import { onKey } from "./shell.js";

/** @typedef {{name: string, text: string, unit?: string, title?: string, kind?: string, lower?: boolean}} Column `name` is empty where a column does not sort; `lower`: its first click puts the least first; `unit` has a line of its own. */

/** Fill a row of heads. @param {HTMLElement} row @param {Column[]} columns @param {string} now the column that sorts, with - before it for the largest first @param {(sort: string) => void} choose */
export function sortHeads(row, columns, now, choose) {
  row.replaceChildren(...columns.map((column) => {
    const head = /** @type {HTMLTableCellElement} */ (element("th", column.kind ?? ""));
    head.scope = "col";
    if (column.title) head.title = column.title;
    const words = column.unit ? [column.text, " ", document.createElement("br"), column.unit] : [column.text];
    if (!column.name) {
      head.append(...words);
      return head;
    }
    const on = now.replace("-", "") === column.name;
    const button = /** @type {HTMLButtonElement} */ (element("button", on ? "sort on" : "sort", ...words));
    button.type = "button";
    if (on) head.setAttribute("aria-sort", now.startsWith("-") ? "descending" : "ascending");
    button.addEventListener("click", () => {
      const down = on ? !now.startsWith("-") : !column.lower;
      choose(down ? `-${column.name}` : column.name);
    });
    head.append(button);
    return head;
  }));
}

/** A table in a box that scrolls sideways, by keys too. @param {HTMLElement} table @param {string} label */
export function scrolled(table, label) {
  const box = element("div", "scroll", table);
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", label);
  return box;
}

/** Sort rows that are all here; what is unknown comes last. @template T @param {T[]} rows @param {string} sort @param {(row: T, name: string) => string|number|null} value */
export function sortRows(rows, sort, value) {
  const name = sort.replace(/^-/, "");
  const sign = sort.startsWith("-") ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [x, y] = [value(a, name), value(b, name)];
    if (x === null || y === null) return Number(x === null) - Number(y === null);
    return sign * (x < y ? -1 : x > y ? 1 : 0);
  });
}

/** Let j and k walk through the rows of a table; Enter follows the link that has the focus. @param {HTMLElement} body */
export function walkRows(body) {
  const walk = (/** @type {number} */ by) => {
    const links = [...body.querySelectorAll("tr")].map((row) => row.querySelector("a, button")).filter((one) => one instanceof HTMLElement);
    if (!links.length) return;
    const now = document.activeElement?.closest("tr");
    const at = links.findIndex((one) => one?.closest("tr") === now);
    const next = links[at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, at + by))];
    /** @type {HTMLElement} */ (next).focus();
  };
  onKey("j", "next row; Enter opens it", () => walk(1));
  onKey("k", "row before", () => walk(-1));
}
