// Drives @anthropic-ai/sdk, with its own tool runner.
import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";
import { ASKED, Weather, drive } from "./drive.mjs";

const Thing = z.object({ name: z.string(), quote: z.string() });
const client = (url, key) => new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
const asked = (model) => ({ model, max_tokens: 500, messages: [{ role: "user", content: ASKED }] });

async function chat(url, key) {
  return (await client(url, key).messages.create(asked("talk"))).content[0].text;
}

async function stream(url, key) {
  const pieces = [];
  await client(url, key).messages.stream(asked("talk")).on("text", (text) => pieces.push(text)).finalMessage();
  return pieces;
}

async function tools(url, key) {
  const weather = new Weather();
  const tool = betaZodTool({
    name: "get_weather",
    description: "Tell the weather of a city.",
    inputSchema: z.object({ city: z.string() }),
    run: weather.getWeather,
  });
  const done = await client(url, key).beta.messages.toolRunner({ ...asked("looker"), tools: [tool] });
  return [done.content.filter((block) => block.type === "text").map((block) => block.text).join(""), weather.asked];
}

async function structured(url, key) {
  const format = { output_config: { format: zodOutputFormat(Thing) } };
  return (await client(url, key).messages.parse({ ...asked("thing"), ...format })).parsed_output;
}

await drive({ messages: { chat, stream, tools, structured } }, "@anthropic-ai/sdk");
