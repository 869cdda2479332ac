// Drives the Vercel AI SDK with its providers for OpenAI (responses, its default, and chat), Anthropic and Google.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { Output, embedMany, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { ASKED, Weather, drive } from "./drive.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const Thing = z.object({ name: z.string(), quote: z.string() });
const openai = (url, key) => createOpenAI({ baseURL: `${url}/v1`, apiKey: key });
const anthropic = (url, key) => createAnthropic({ baseURL: `${url}/v1`, apiKey: key });
const google = (url, key) => createGoogleGenerativeAI({ baseURL: `${url}/v1beta`, apiKey: key });

const ways = (made) => ({
  chat: async (url, key) =>
    (await generateText({ model: made(url, key, "talk"), prompt: ASKED, maxRetries: 0 })).text,
  stream: async (url, key) => {
    const pieces = [];
    let failure = null;
    const run = streamText({
      model: made(url, key, "talk"),
      prompt: ASKED,
      maxRetries: 0,
      onError: ({ error }) => {
        failure = error;
      },
    });
    for await (const piece of run.textStream) pieces.push(piece);
    if (failure) throw failure;
    return pieces;
  },
  tools: async (url, key) => {
    const weather = new Weather();
    const get_weather = tool({
      description: "Tell the weather of a city.",
      inputSchema: z.object({ city: z.string() }),
      execute: weather.getWeather,
    });
    const done = await generateText({
      model: made(url, key, "looker"),
      prompt: ASKED,
      tools: { get_weather },
      stopWhen: stepCountIs(5),
      maxRetries: 0,
    });
    return [done.text, weather.asked];
  },
  structured: async (url, key) =>
    (await generateText({ model: made(url, key, "thing"), prompt: ASKED, output: Output.object({ schema: Thing }), maxRetries: 0 }))
      .output,
});

const embeddings = (made) => async (url, key) =>
  (await embedMany({ model: made(url, key).textEmbeddingModel("talk"), values: ["one", "two"], maxRetries: 0 })).embeddings;

await drive(
  {
    "openai, responses": ways((url, key, model) => openai(url, key)(model)),
    "openai.chat": { ...ways((url, key, model) => openai(url, key).chat(model)), embeddings: embeddings(openai) },
    anthropic: ways((url, key, model) => anthropic(url, key)(model)),
    google: { ...ways((url, key, model) => google(url, key)(model)), embeddings: embeddings(google) },
  },
  "ai",
  "@ai-sdk/openai",
  "@ai-sdk/anthropic",
  "@ai-sdk/google",
);
