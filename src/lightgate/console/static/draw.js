// Elements, numbers and small pictures. Whatever comes from outside goes into text nodes only.

export const NONE = "·";
const SVG = "http://www.w3.org/2000/svg";

/** @param {string} tag @param {string} className @param {...(Node|string)} inner */
export function element(tag, className, ...inner) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...inner);
  return made;
}

/** @param {string} tag @param {Record<string, string|number>} attributes @param {...(Node|string)} inner */
export function svg(tag, attributes, ...inner) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...inner);
  return made;
}

/** @param {string} id */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element ${id}`);
  return found;
}

/** Whole numbers from 10 on, two decimals below, so that a column stays aligned. @param {number|null} value */
export function number(value) {
  if (value === null || value === undefined) return NONE;
  const digits = Math.abs(value) >= 9.995 ? 0 : 2;
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** @param {number|null} value */
export function whole(value) {
  return value === null || value === undefined ? NONE : Math.round(value).toLocaleString("en");
}

/** A share in percent; what is not all of it never rounds to 100. @param {number|null} share */
export function percent(share) {
  if (share === null) return NONE;
  return (Math.floor(share * 1000 + 1e-9) / 10).toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
}

/** Dollars with as many decimals as their column has. @param {string|number|null} dollars @param {number} digits */
export function money(dollars, digits) {
  if (dollars === null) return NONE;
  const value = Number(dollars);
  const least = 10 ** -digits;
  if (value > 0 && value < least) return `<${least.toFixed(digits)}`;
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** Dollars in a sentence. @param {string|number|null} amount @param {number} digits */
export function usd(amount, digits) {
  if (Number(amount) < 0) return `−${usd(-Number(amount), digits)}`;
  const text = money(amount, digits);
  return text.startsWith("<") ? `<$${text.slice(1)}` : text === NONE ? NONE : `$${text}`;
}

/** Dollars that stand alone: cents, or two digits that tell of less. @param {string|number|null} amount */
export function dollars(amount) {
  const size = Math.abs(Number(amount ?? 0));
  return usd(amount, size >= 0.1 || size === 0 ? 2 : Math.min(9, 1 - Math.floor(Math.log10(size))));
}

/** A figure on a card. @param {string} title @param {string} value @param {string} [unit] */
export function card(title, value, unit = "") {
  return element("div", "card", element("p", "soft", title), element("p", "big", value, element("span", "unit", value === NONE ? "" : unit)));
}

/** A command that can be copied. @param {string} line */
export function copyLine(line) {
  const copy = /** @type {HTMLButtonElement} */ (element("button", "", "Copy"));
  copy.type = "button";
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(line);
    copy.textContent = "Copied";
  });
  return element("div", "command", element("pre", "", line), copy);
}

/** A sentence in which what stands between backticks is set as code. @param {string} text */
export function words(text) {
  return text.split("`").map((part, at) => (at % 2 ? element("code", "", part) : part));
}

/** @param {{v: number|null, lo: number|null, hi: number|null, n: number}} figure @param {string} unit */
export function interval(figure, unit) {
  if (figure.v === null) return `too few samples: n ${whole(figure.n)}`;
  return `${number(figure.lo)}–${number(figure.hi)} ${unit} (95 %), n ${whole(figure.n)}`;
}

/** @param {string} text @param {string} [className] @param {string} [title] */
export function cell(text, className = "", title = "") {
  const made = element("td", text === NONE ? `${className} none` : className, text);
  if (title) made.title = title;
  return made;
}

/** The median first token of 24 hours; gaps where there were too few. @param {(number|null)[]} points */
export function spark(points) {
  const known = /** @type {number[]} */ (points.filter((point) => point !== null));
  if (!known.length) return element("span", "none", NONE);
  const low = Math.min(...known);
  const high = Math.max(...known);
  const y = (/** @type {number} */ value) => (high > low ? 18 - (16 * (value - low)) / (high - low) : 10);
  const picture = svg("svg", { viewBox: "0 0 96 20", class: "spark", role: "img" });
  const title = `first token, median by hour, last 24 h: ${number(low)}–${number(high)} ms`;
  picture.append(svg("title", {}, title));
  /** @type {string[]} */
  let line = [];
  const flush = () => {
    if (line.length > 1) picture.append(svg("polyline", { points: line.join(" ") }));
    else if (line.length === 1) {
      const [x, at] = line[0].split(",");
      picture.append(svg("circle", { cx: x, cy: at, r: 1.2 }));
    }
    line = [];
  };
  points.forEach((point, at) => {
    if (point === null) flush();
    else line.push(`${2 + at * 4},${y(point).toFixed(1)}`);
  });
  flush();
  const last = points.at(-1);
  if (last !== null && last !== undefined) picture.append(svg("circle", { cx: 94, cy: y(last).toFixed(1), r: 2, class: "dot" }));
  return picture;
}

/** @param {string|null} grade */
export function gradeMark(grade) {
  if (grade === null) return element("span", "small-n", "n too small");
  return element("span", `grade g${Number.parseInt(grade, 10)}`, grade);
}

/** How long ago, in words. @param {string} time @param {string} now */
export function ago(time, now) {
  const seconds = Math.max(0, (Date.parse(now) - Date.parse(time)) / 1000);
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} d ago`;
}

/** Make the children of a line those that are given, and touch only what differs: the focus and a tip stay. @param {Element} line @param {Element[]} cells */
export function settle(line, cells) {
  if (line.children.length !== cells.length) {
    line.replaceChildren(...cells);
    return;
  }
  cells.forEach((cell, at) => {
    const old = line.children[at];
    if (old.isEqualNode(cell)) return;
    const focused = old.contains(document.activeElement);
    old.replaceWith(cell);
    if (focused) /** @type {HTMLElement|null} */ (cell.querySelector("a, button"))?.focus();
  });
}

/** A round step with which an axis up to `end` has four to eight marks. @param {number} end */
export function step(end) {
  const rough = end / 6;
  const unit = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((one) => one * unit).find((one) => one >= rough) ?? rough;
}
