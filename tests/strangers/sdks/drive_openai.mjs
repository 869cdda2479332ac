// Drives the openai package for Node: chat completions with its own tool runner, responses, embeddings.
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { ASKED, Weather, drive } from "./drive.mjs";

const Thing = z.object({ name: z.string(), quote: z.string() });
const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const client = (url, key) => new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const messages = () => [{ role: "user", content: ASKED }];

async function chat(url, key) {
  const done = await client(url, key).chat.completions.create({ model: "talk", messages: messages() });
  return done.choices[0].message.content;
}

async function stream(url, key) {
  const pieces = [];
  const asked = { model: "talk", messages: messages(), stream: true };
  for await (const chunk of await client(url, key).chat.completions.create(asked)) {
    if (chunk.choices[0]?.delta?.content) pieces.push(chunk.choices[0].delta.content);
  }
  return pieces;
}

async function tools(url, key) {
  const weather = new Weather();
  const tool = { name: "get_weather", parameters, parse: JSON.parse, function: weather.getWeather };
  const runner = client(url, key).chat.completions.runTools({
    model: "looker",
    messages: messages(),
    tools: [{ type: "function", function: { ...tool, description: "Tell the weather of a city." } }],
  });
  return [await runner.finalContent(), weather.asked];
}

async function structured(url, key) {
  const done = await client(url, key).chat.completions.parse({
    model: "thing",
    messages: messages(),
    response_format: zodResponseFormat(Thing, "thing"),
  });
  return done.choices[0].message.parsed;
}

async function embeddings(url, key) {
  const done = await client(url, key).embeddings.create({ model: "talk", input: ["one", "two"] });
  return done.data.map((item) => item.embedding);
}

async function response(url, key) {
  return (await client(url, key).responses.create({ model: "talk", input: ASKED })).output_text;
}

async function responseStream(url, key) {
  const pieces = [];
  const asked = { model: "talk", input: ASKED, stream: true };
  for await (const event of await client(url, key).responses.create(asked)) {
    if (event.type === "response.output_text.delta") pieces.push(event.delta);
  }
  return pieces;
}

async function responseTools(url, key) {
  const weather = new Weather();
  const input = messages();
  const tool = { type: "function", name: "get_weather", parameters, strict: true };
  for (;;) {
    const done = await client(url, key).responses.create({ model: "looker", input, tools: [tool], store: false });
    input.push(...done.output);
    const calls = done.output.filter((item) => item.type === "function_call");
    if (!calls.length) return [done.output_text, weather.asked];
    for (const call of calls) {
      const output = weather.getWeather(JSON.parse(call.arguments));
      input.push({ type: "function_call_output", call_id: call.call_id, output });
    }
  }
}

async function responseStructured(url, key) {
  const format = zodTextFormat(Thing, "thing");
  const done = await client(url, key).responses.parse({ model: "thing", input: ASKED, text: { format } });
  return done.output_parsed;
}

await drive(
  {
    "chat completions": { chat, stream, tools, structured, embeddings },
    responses: { chat: response, stream: responseStream, tools: responseTools, structured: responseStructured },
  },
  "openai",
);
