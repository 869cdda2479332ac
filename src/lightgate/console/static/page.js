// Draws /api/speeds every two seconds. Whatever comes from outside goes into text nodes only.

const REFRESH_MS = 2000;
const NONE = "·";
const rows = document.getElementById("rows");
const totals = document.getElementById("totals");
const state = document.getElementById("state");
const hours = document.getElementById("hours");

/** @param {string} tag @param {string} className @param {...(Node|string)} inner */
function element(tag, className, ...inner) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...inner);
  return made;
}

/** @param {number|null} value @param {number} [digits] */
function number(value, digits = 0) {
  if (value === null) return NONE;
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** @param {string|null} dollars */
function money(dollars) {
  if (dollars === null) return NONE;
  const value = Number(dollars);
  if (value > 0 && value < 0.00001) return "<$0.00001";
  return `$${value.toLocaleString("en", { maximumFractionDigits: value < 1 ? 5 : 2 })}`;
}

/** @param {string} text @param {string} [className] */
function cell(text, className = "") {
  return element("td", text === NONE ? `${className} none` : className, text);
}

/** @param {number|null} speed @param {number} top */
function meter(speed, top) {
  if (speed === null) return cell(NONE, "w");
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 100 10");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  for (const [width, kind] of [[100, ""], [top > 0 ? (100 * speed) / top : 0, "fill"]]) {
    const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    bar.setAttribute("width", String(width));
    bar.setAttribute("height", "10");
    bar.setAttribute("rx", "3");
    bar.setAttribute("class", String(kind));
    svg.append(bar);
  }
  return element("td", "w", element("div", "meter", svg, element("span", "", number(speed))));
}

/** @param {any} row @param {{ttft: number, speed: number}} best */
function line(row, best) {
  const share = row.requests ? row.ok / row.requests : null;
  const shown = share === null ? NONE : `${number(100 * share, share < 1 ? 1 : 0)} %`;
  const name = element("td", "name", row.target);
  name.title = row.target;
  const failed = element("td", row.last_error ? "error" : "error none", row.last_error || NONE);
  failed.title = row.last_error || "";
  const grade = row.grade === null ? cell(NONE)
    : element("td", "", element("span", `grade g${Number.parseInt(row.grade, 10)}`, row.grade));
  return element(
    "tr", "", name,
    cell(number(row.requests)),
    cell(shown, share !== null && share < 0.99 ? "worse" : ""),
    cell(number(row.ttft_p50_ms), row.ttft_p50_ms === best.ttft ? "best" : ""),
    cell(number(row.ttft_p95_ms)),
    meter(row.speed_p50_tps, best.speed),
    cell(number(row.speed_total_p50_tps)),
    grade,
    cell(money(row.cost_usd)),
    failed,
  );
}

/** @param {string} title @param {string} value */
function card(title, value) {
  return element("div", "card", element("p", "soft", title), element("p", "big", value));
}

/** @param {any} row */
function hourly(row) {
  const each = row.usd_per_mtok === null ? "" : `, ${money(row.usd_per_mtok)} per million output tokens`;
  const used = number(100 * row.in_use);
  return element("p", "soft", `${row.provider} is self-hosted: ${money(row.usd_per_hour)} an hour, in use for ${used} % of the`
    + ` window, ${money(row.cost_usd)} in it${each}.`);
}

/** @param {any} speeds */
function draw(speeds) {
  const known = (/** @type {string} */ key) => speeds.rows.map((/** @type {any} */ row) => row[key])
    .filter((/** @type {number|null} */ value) => value !== null);
  const best = { ttft: Math.min(...known("ttft_p50_ms")), speed: Math.max(...known("speed_p50_tps"), 0) };
  rows.replaceChildren(...speeds.rows.map((/** @type {any} */ row) => line(row, best)));
  const share = speeds.requests ? `${number((100 * speeds.ok) / speeds.requests, 1)} %` : NONE;
  totals.replaceChildren(
    card("requests", number(speeds.requests)),
    card("ended well", share),
    card("tokens out", number(speeds.tokens_out)),
    card("overhead p50", speeds.overhead_p50_ms === null ? NONE : `${number(speeds.overhead_p50_ms, 2)} ms`),
    card("cost", money(speeds.cost_usd)),
  );
  hours.replaceChildren(...speeds.hourly.map(hourly));
  const minutes = number(speeds.window_s / 60);
  const hidden = speeds.left_out ? `, ${number(speeds.left_out)} more targets not shown` : "";
  const acted = speeds.rows.some((/** @type {any} */ row) => row.target.startsWith("sim-"));
  const simulated = acted ? " Providers that begin with sim- are simulated." : "";
  state.className = "soft";
  state.textContent = speeds.rows.length
    ? `The last ${minutes} minutes, refreshed every 2 s${hidden}. Fastest first token first; times in ms.${simulated}`
    : "No request yet. Send one, and it appears here.";
}

async function turn() {
  try {
    const answer = await fetch("/api/speeds", { cache: "no-store", credentials: "same-origin" });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    draw(await answer.json());
  } catch (error) {
    state.className = "stale";
    state.textContent = `The console does not answer (${error instanceof Error ? error.message : "?"}); these numbers are old.`;
  }
  setTimeout(turn, REFRESH_MS);
}

turn();
