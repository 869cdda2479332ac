// What the drivers for Node share; drive.py is the same for Python.
import { readFileSync } from "node:fs";

export const SAID = "It rains in Oslo today.";
export const THING = { name: "Ada", quote: "It computes." };
export const ASKED = "What is the weather in Oslo?";
const LONGEST = 160; // characters of a complaint

export class Weather {
  asked = [];
  getWeather = ({ city }) => {
    this.asked.push(city);
    return "rain";
  };
}

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

function checked(feature, found) {
  const good = {
    chat: () => found === SAID,
    stream: () => found.length > 1 && found.join("") === SAID,
    tools: () => same(found, [SAID, ["Oslo"]]),
    structured: () => same(found, THING),
    embeddings: () => same(found.map((vector) => vector.length), [64, 64]),
  }[feature]();
  return good ? null : `it came out as ${JSON.stringify(found)}`;
}

function complaint(error) {
  let text = String(error?.message ?? error);
  const said = /"message": ?"(.*?)"[,}]/s.exec(text);
  text = (said ? said[1] : text).split(/\s+/).join(" ").replace(/127\.0\.0\.1:\d+/g, "the gateway");
  text = `${text.replace(/^4\d\d /, "").split(". ")[0].replace(/\.$/, "")}.`;
  return text.length <= LONGEST ? text : `${text.slice(0, LONGEST - 1)}…`;
}

async function tried(feature, way, url, key) {
  try {
    return checked(feature, await way(url, key));
  } catch (error) {
    return complaint(error);
  }
}

export async function drive(ways, ...packages) {
  const given = JSON.parse(process.argv[2]);
  const seen = {};
  for (const [form, features] of Object.entries(ways)) {
    seen[form] = {};
    for (const [feature, way] of Object.entries(features)) {
      seen[form][feature] = {};
      for (const [kind, url] of Object.entries(given.urls)) {
        if (kind === "openai-chat" && !form.includes("responses")) continue;
        seen[form][feature][kind] = await tried(feature, way, url, given.key);
      }
    }
  }
  const version = (name) => JSON.parse(readFileSync(`node_modules/${name}/package.json`)).version;
  const versions = Object.fromEntries(packages.map((name) => [name, version(name)]));
  console.log(JSON.stringify({ versions, seen }));
}
