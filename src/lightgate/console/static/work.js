// Sending orders to the console, and reading what it streams back.

import { byId, copyLine, element } from "./draw.js";
import { ask } from "./state.js";

/** What a refusal says, in words; what lacks a sign-in says how to get one below. @param {Response} answer */
async function refusal(answer) {
  const text = (await answer.text()).trim();
  if (answer.status !== 401) return text || `status ${answer.status}`;
  const told = await ask("/api/session", "");
  byId("empty").replaceChildren(...signInHelp(told.line));
  byId("empty").hidden = false;
  return "This spends money, or may: it needs a sign-in.";
}

/** How a browser is signed in. @param {string} line what prints a link */
export function signInHelp(line) {
  return [element("p", "", "Run this on the machine of the gateway, and open the link that it prints. The link signs one browser in, once, within 10 minutes:"), copyLine(line)];
}

/** Post an order and take each event of the answer's stream. @param {string} path @param {any} order @param {(data: any) => void} take @param {AbortSignal} signal */
export async function send(path, order, take, signal) {
  const answer = await fetch(path, { method: "POST", credentials: "same-origin", cache: "no-store", headers: { "content-type": "application/json" }, body: JSON.stringify(order), signal });
  if (!answer.ok || !answer.body) throw new Error(await refusal(answer));
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop() ?? "";
    for (const part of parts) if (part.startsWith("data: ")) take(JSON.parse(part.slice(6)));
  }
}

/** Send an order and return the answer. @param {string} method @param {string} path @param {any} [order] */
export async function tell(method, path, order) {
  const answer = await fetch(path, { method, credentials: "same-origin", cache: "no-store", ...(order === undefined ? {} : { headers: { "content-type": "application/json" }, body: JSON.stringify(order) }) });
  if (!answer.ok) throw new Error(await refusal(answer));
  return answer.status === 204 ? null : answer.json();
}

/** A row of heads. @param {string[][]} columns text and class of each */
export function heads(columns) {
  return element("tr", "", ...columns.map(([text, kind]) => {
    const head = /** @type {HTMLTableCellElement} */ (element(text ? "th" : "td", kind, text));
    if (text) head.scope = "col";
    return head;
  }));
}

/** Give a cell the words that stand beside it on a phone. @param {string} label @param {HTMLElement} made */
export function labelled(label, made) {
  made.dataset.label = label;
  return made;
}

/** Names to choose from, as chips, with what they cost. @param {any} terms @param {Set<string>} chosen @param {() => void} changed */
export function choices(terms, chosen, changed) {
  const known = (/** @type {string} */ name) => terms.choices.find((/** @type {any} */ one) => one.name === name);
  const first = new Set(chosen); // they come first, and stay where they are when others are chosen
  const names = terms.choices.map((/** @type {any} */ one) => one.name);
  const draw = () => {
    const shown = [...names.filter((/** @type {string} */ name) => first.has(name)), ...names.filter((/** @type {string} */ name) => !first.has(name)), ...[...chosen].filter((name) => !known(name))];
    byId("lanes").replaceChildren(...shown.map((name) => {
      const box = document.createElement("input");
      box.type = "checkbox";
      box.name = "lane";
      box.value = name;
      box.checked = chosen.has(name);
      box.addEventListener("change", () => {
        if (box.checked) chosen.add(name);
        else chosen.delete(name);
        changed();
      });
      const chip = element("label", "chip", box, element("span", "", name));
      if (known(name)?.kind === "alias") {
        chip.append(element("span", "soft", known(name).targets.length === 1 ? "1 target" : `${known(name).targets.length} targets`));
        chip.title = known(name).targets.join(", ");
      }
      return chip;
    }));
  };
  byId("others").replaceChildren(...terms.others.map((/** @type {string} */ name) => {
    const option = document.createElement("option");
    option.value = name;
    return option;
  }));
  const other = /** @type {HTMLInputElement} */ (document.querySelector("input[name=other]"));
  const choose = (/** @type {string} */ name) => {
    chosen.add(name);
    draw();
    changed();
  };
  other.addEventListener("change", () => {
    if (other.value.trim()) choose(other.value.trim());
    other.value = "";
  });
  draw();
  return {
    chosen,
    choose,
    /** The most that so many requests to each can cost, and whose price is not known. @param {number} tokensIn @param {number} tokensOut @param {number} times */
    cost(tokensIn, tokensOut, times) {
      let dollars = 0;
      const unknown = [];
      for (const name of chosen) {
        const one = known(name);
        if (one?.free) continue;
        if (!one || one.input === null || one.output === null) unknown.push(name);
        else dollars += (times * (Number(one.input) * tokensIn + Number(one.output) * tokensOut)) / 1e6;
      }
      return { dollars, unknown };
    },
  };
}
