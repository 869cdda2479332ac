// One request on one axis of time: the gateway's own steps, then each attempt as a lane.

import { NONE, dollars, element, money, number, step, svg, usd, whole } from "./draw.js";

const WIDTH = 1000;
const LANE = 32;
const TOP = 8;
const STALL_MS = 100;
const STALL_TIMES = 8; // of the usual gap

/** @param {Node} parent @param {number} from @param {number} to @param {number} y @param {string} kind @param {string} title @param {(t: number) => number} x */
function bar(parent, from, to, y, kind, title, x) {
  const thin = kind === "wait" || kind === "connect";
  const made = svg("rect", {
    x: x(from).toFixed(1), y: y + (thin ? 10 : 4), width: Math.max(1, x(to) - x(from)).toFixed(1), height: thin ? 4 : 16, rx: thin ? 2 : 3, class: kind,
  }, svg("title", {}, title));
  parent.appendChild(made);
}

/** A tick for every read that brought tokens, one for all that share a pixel, and a line over a stall. @param {any} lane @param {number} y @param {Node} picture @param {(t: number) => number} x */
function drawTicks(lane, y, picture, x) {
  /** @type {number[]} */
  const ticks = lane.ticks_ms;
  const places = new Set(ticks.map((t) => Math.round(x(t) * 2) / 2));
  const kind = lane.won === false ? "ticks lost" : "ticks";
  const gaps = ticks.slice(1).map((t, at) => t - ticks[at]);
  const usual = [...gaps].sort((a, b) => a - b)[Math.floor(gaps.length / 2)] ?? 0;
  const words = `${whole(lane.bursts ?? ticks.length)} reads with tokens, ${number(usual)} ms apart at the median`;
  picture.appendChild(svg("rect", { x: x(ticks[0]).toFixed(1), y: y + 4, width: Math.max(1, x(ticks[ticks.length - 1]) - x(ticks[0])).toFixed(1), height: 16, class: "under" }, svg("title", {}, words)));
  picture.appendChild(svg("path", { d: [...places].map((at) => `M${at} ${y + 4}v16`).join(""), class: kind }));
  gaps.forEach((gap, at) => {
    if (gap < STALL_MS || gap < STALL_TIMES * usual) return;
    const [from, to] = [x(ticks[at]), x(ticks[at + 1])];
    picture.appendChild(svg("path", { d: `M${from} ${y + 12}H${to}`, class: "stall" }, svg("title", {}, `stall: no token for ${number(gap)} ms`)));
  });
}

/** @param {any} lane @param {number} y @param {Node} picture @param {(t: number) => number} x */
function drawLane(lane, y, picture, x) {
  const t = lane.t_ms;
  const connect = ["pool_wait_ms", "dns_ms", "tcp_ms", "tls_ms"].reduce((sum, name) => sum + (lane[name] ?? 0), 0);
  const ms = (/** @type {number} */ value) => `${number(value)} ms`;
  if (t.plan !== null && t.send !== null) bar(picture, t.plan, t.send, y, "connect", `waited and connected: ${ms(t.send - t.plan)}, of it pool, DNS, TCP, TLS ${ms(connect)}`, x);
  const end = t.end ?? t.last ?? t.first ?? t.headers ?? t.send ?? t.plan; // one that found no connection has its plan alone
  if (t.send !== null) {
    const until = t.first ?? end;
    if (until !== null) bar(picture, t.send, until, y, "wait", t.first === null ? `no token came in ${ms(until - t.send)}` : `sent, first token after ${ms(t.first - t.send)}`, x);
  }
  if (t.first !== null && t.last !== null && lane.ticks_ms) drawTicks(lane, y, picture, x);
  else if (t.first !== null && t.last !== null) {
    bar(picture, t.first, t.last, y, lane.won === false ? "lost" : "tokens", `tokens for ${ms(t.last - t.first)} in ${whole(lane.bursts ?? 0)} reads, longest gap ${lane.stall_ms === null ? NONE : ms(lane.stall_ms)}`, x);
  }
  for (const [name, words] of [["headers", "status line"], ["first", "first token"], ["answer", "first token of the answer"]]) {
    if (t[name] !== null) {
      picture.appendChild(svg("line", { x1: x(t[name]).toFixed(1), x2: x(t[name]).toFixed(1), y1: y + 2, y2: y + 22, class: `flag ${name}` }, svg("title", {}, `${words} at ${ms(t[name])}`)));
    }
  }
  if (lane.outcome !== "ok" && end !== null) picture.appendChild(svg("path", { d: `M${x(end) - 4} ${y + 8}l8 8m0 -8l-8 8`, class: closed(lane) ? "cross closed" : "cross" }, svg("title", {}, `${ending(lane)} at ${ms(end)}`)));
}

/** Whether the gateway closed an attempt because another one was first, which is no failure. @param {any} lane */
function closed(lane) {
  return lane.outcome === "cancelled" && lane.won === false;
}

/** How an attempt ended, in words. @param {any} lane */
function ending(lane) {
  if (closed(lane)) return "closed: another one was first";
  return lane.error ? `${lane.outcome}: ${lane.error}` : lane.outcome;
}

/** @param {any} told @param {HTMLElement} close */
export function waterfall(told, close) {
  const { exchange, attempts } = told;
  const asked = attempts.length > 0;
  const instants = [told.t_ms, ...attempts.map((/** @type {any} */ lane) => lane.t_ms)]
    .flatMap((/** @type {Record<string, number|null>} */ some) => Object.entries(some).filter(([name]) => name !== "accepted").map(([, value]) => value))
    .filter((value) => value !== null);
  const end = Math.max(1, ...instants);
  const x = (/** @type {number} */ t) => (WIDTH * Math.max(0, t)) / end;
  const height = TOP + LANE * (attempts.length + 1);
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, height, class: "waterfall", preserveAspectRatio: "none", role: "img" }, svg("title", {}, "The request over time"));
  const axis = element("div", "axis");
  for (let t = 0; t <= end; t += step(end)) {
    picture.append(svg("line", { x1: x(t), x2: x(t), y1: 0, y2: height, class: "grid" }));
    const mark = element("span", "", t === 0 ? "0 ms" : t.toLocaleString("en", { maximumSignificantDigits: 6 }));
    mark.style.left = `${(100 * x(t)) / WIDTH}%`;
    axis.append(mark);
  }
  const g = told.t_ms;
  if (g.received !== null && g.first_byte !== null) bar(picture, g.first_byte, g.received, TOP, "connect", `request came in: ${number(g.received - g.first_byte)} ms`, x);
  if (g.received !== null && g.sent !== null) bar(picture, g.received, g.sent, TOP, "gateway", `gateway until it was sent: ${number(g.sent - g.received)} ms`, x);
  if (g.first_out !== null && g.last_out !== null) bar(picture, g.first_out, g.last_out, TOP, "handed", `handed to the client for ${number(g.last_out - g.first_out)} ms`, x);
  const labels = element("div", "labels", element("span", "", "gateway"));
  attempts.forEach((/** @type {any} */ lane, /** @type {number} */ at) => {
    drawLane(lane, TOP + LANE * (at + 1), picture, x);
    const label = element("span", lane.won === false ? "soft" : "", `${at + 1} ${lane.target}`);
    label.title = `${lane.target}, ${lane.role}`;
    labels.append(label);
  });
  const ticked = attempts.some((/** @type {any} */ lane) => lane.ticks_ms);
  const fact = (/** @type {string} */ name, /** @type {string} */ value) => element("div", "", element("dt", "", name), element("dd", "", value));
  const facts = element(
    "dl", "facts",
    fact("outcome", exchange.outcome),
    fact("answered by", exchange.winner ?? NONE),
    fact("TTFT", timed(exchange.ttft_ms)),
    fact("whole", timed(exchange.e2e_ms)),
    fact("overhead", timed(exchange.overhead_ms)),
    fact("tokens in → out", `${whole(exchange.tokens_in)} → ${whole(exchange.tokens_out)}`),
    fact("cost", exchange.cost_usd === null ? NONE : `${usd(exchange.cost_usd, 6)}`),
    ...(Number(exchange.loser_cost_usd) ? [fact("losers", dollars(exchange.loser_cost_usd))] : []),
    ...(asked ? [fact("policy", exchange.policy)] : []),
    ...(exchange.cache === "off" ? [] : [fact("cache", exchange.cache)]),
    ...(exchange.key_id === null ? [] : [fact("key", exchange.key_id)]),
    ...(exchange.tags === null ? [] : [fact("tags", exchange.tags)]),
  );
  return element(
    "div", "",
    element("div", "bar", element("h2", "", `${exchange.model_asked}, ${exchange.wall_time.slice(0, 23).replace("T", " ")} UTC`), element("p", "tools", close)),
    facts,
    ...(exchange.error ? [element("p", "worse", exchange.error)] : []),
    element("div", "fall", element("div", "spacer"), axis, labels, picture),
    legend(picture, ticked),
    ticked || !asked ? "" : element("p", "soft", exchange.streamed ? "Single ticks are kept for the newest requests only." : "The client asked for no stream: the answer came in one piece."),
    ...(asked ? [lanes(attempts), steps(g, attempts)] : []),
    why(told),
    element("p", "soft", `Request id ${exchange.request_id}${exchange.id === exchange.request_id ? "" : `, in the ledger ${exchange.id}`}.`),
  );
}

/** What the signs of a picture mean, those alone that are in it. @param {Element} picture @param {boolean} ticked */
function legend(picture, ticked) {
  const kinds = [
    ["connect", ".connect", "waits and connects"], ["gateway", ".gateway", "gateway until it was sent"], ["wait", ".wait", "waits for the first token"],
    ["tokens", ".tokens, .ticks:not(.lost)", ticked ? "a read with tokens" : "tokens of the winner"], ["lost", ".lost", "tokens of a loser"],
    ["handed", ".handed", "handed to the client"], ["stalled", ".stall", "a stall"],
  ];
  return element("p", "legend soft", ...kinds.filter(([, seen]) => picture.querySelector(seen)).map(([kind, , text]) => element("span", "", element("i", kind), text)));
}

/** @param {number|null} value */
const timed = (value) => (value === null ? NONE : `${number(value)} ms`);

/** A table in which some columns are words. @param {string[]} heads @param {string[][]} rows @param {Record<number, string>} kinds @param {string} name */
function table(heads, rows, kinds, name) {
  const head = element("tr", "", ...heads.map((text, at) => {
    const made = /** @type {HTMLTableCellElement} */ (element("th", kinds[at] ? "left" : "", text));
    made.scope = "col";
    return made;
  }));
  const lines = rows.map((texts) => element("tr", "", ...texts.map((text, at) => element("td", kinds[at] ?? "", text))));
  const box = element("div", "scroll", element("table", "board small", element("thead", "", head), element("tbody", "", ...lines)));
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", name);
  return box;
}

/** @param {any[]} attempts */
function lanes(attempts) {
  const heads = ["#", "target", "role", "outcome", "TTFT ms", "speed tok/s", "reads", "tok out", "$", "provider's id"];
  return table(heads, attempts.map((lane, at) => [
    String(at + 1), lane.target, lane.won === true ? `${lane.role}, won` : lane.role, ending(lane),
    number(lane.ttft_ms), number(lane.speed_tps), whole(lane.bursts), whole(lane.tokens_out), money(lane.cost_usd, 6), lane.provider_request_id ?? NONE,
  ]), { 1: "left", 2: "left", 3: "left wrap", 9: "left id" }, "Attempts");
}

/** What each step of the way took, where a lane is too narrow to show it. @param {Record<string, number|null>} gateway @param {any[]} attempts */
function steps(gateway, attempts) {
  const between = (/** @type {number|null} */ from, /** @type {number|null} */ to) => (from === null || to === null ? NONE : number(to - from));
  const heads = ["#", "target", "sent at ms", "pool", "DNS", "TCP", "TLS", "to status line", "prefill", "tokens", "longest gap", "ends at ms"];
  const rows = attempts.map((lane, at) => {
    const t = lane.t_ms;
    return [String(at + 1), lane.target, number(t.send), ...["pool_wait_ms", "dns_ms", "tcp_ms", "tls_ms"].map((name) => number(lane[name])),
      between(t.send, t.headers), between(t.headers ?? t.send, t.first), between(t.first, t.last), number(lane.stall_ms), number(t.end)];
  });
  const reused = attempts.some((lane) => lane.tcp_ms === null) ? " Without a time at TCP the connection was open already." : "";
  const words = [["request read", gateway.first_byte, gateway.received], ["planned", gateway.received, gateway.routed], ["sent", gateway.routed, gateway.sent]]
    .filter(([, from, to]) => from !== null && to !== null).map(([name, from, to]) => `${name} in ${timed(Number(to) - Number(from))}`);
  return element("div", "", element("h3", "", "Where the time went, ms"),
    element("p", "soft", `${words.length ? `Gateway: ${words.join(", ")}.` : ""} Prefill is from the status line to the first token.${reused}`.trim()),
    table(heads, rows, { 1: "left" }, "Steps of each attempt"));
}

/** @param {any} told */
function why(told) {
  const box = element("div", "why-box", element("h3", "", "Why it went there"));
  if (told.exchange.plan && told.attempts.length) box.append(element("p", "plan", `Plan: ${told.exchange.plan}`));
  if (told.why) box.append(element("p", "soft", told.why));
  if (!told.candidates.length) return box;
  const heads = ["target", "first token ms", "end ms", "samples", "in flight", "fails %", "$", "why"];
  box.append(table(heads, told.candidates.map((/** @type {any} */ one) => [
    one.target, number(one.ttft_ms), number(one.end_ms), whole(one.samples), whole(one.in_flight), number(100 * one.failures), money(one.cost_usd, 6), one.why,
  ]), { 0: "left", 7: "left wrap" }, "Candidates"));
  return box;
}
