// holds: api-openai-node, api-chat

import type OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { byteToken, NO_END, only, ProcessCluster, TINY } from "../../../test/process-cluster.ts";

// The unmodified official Node client against a master and a worker as processes. The tiny model's
// weights are random, so logit_bias steers its text, and logprobs show the expected result.

type Params = Omit<OpenAI.ChatCompletionCreateParamsNonStreaming, "stream">;

let cluster: ProcessCluster;
let openai: OpenAI;

beforeAll(async () => {
  cluster = await ProcessCluster.start();
  openai = cluster.openai;
});
afterAll(() => cluster.close());

const ask = (text: string): Params => ({
  model: TINY,
  messages: [{ role: "user", content: text }],
  seed: 7,
});

/** Letters and merged pairs of letters: texts with tokens of one and of two characters. */
const LETTERS: Record<string, number> = {
  ...only("abcdefghijklmnopqrstuvwxyz"),
  ...Object.fromEntries(Array.from({ length: 14 * 12 }, (_, i) => [String(4 + 256 + 14 + i), 100])),
};

const whole = (params: Params) => openai.chat.completions.create(params);

/** A streamed answer assembled per choice, with all its chunks. */
async function streamed(params: Params) {
  const stream = await openai.chat.completions.create({ ...params, stream: true });
  const chunks: OpenAI.ChatCompletionChunk[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  const choices = Array.from({ length: params.n ?? 1 }, (_, index) => {
    const own = chunks.flatMap((chunk) => chunk.choices).filter((part) => part.index === index);
    return {
      text: own.map((part) => part.delta.content ?? "").join(""),
      logprobs: own.flatMap((part) => part.logprobs?.content ?? []),
      finish: own.map((part) => part.finish_reason).filter((reason) => reason !== null),
      roles: own.filter((part) => part.delta.role !== undefined).length,
    };
  });
  return { chunks, choices };
}

describe("an answer", () => {
  // holds: api-seed
  it("is the same streamed and not, and with the same seed, but not with another", async () => {
    const params = { ...ask("hello"), max_tokens: 24, logit_bias: NO_END };
    await whole(params); // From here on the prompt is cached for every call.
    const answer = await whole(params);
    const text = answer.choices[0]?.message.content;
    expect(answer.choices[0]?.finish_reason).toBe("length");
    expect(answer.usage?.completion_tokens).toBe(24);
    expect((await whole(params)).choices[0]?.message.content).toBe(text);
    const { choices } = await streamed(params);
    expect(choices[0]).toMatchObject({ text, finish: ["length"], roles: 1 });
    expect((await whole({ ...params, seed: 8 })).choices[0]?.message.content).not.toBe(text);
  });

  it("identifies the model in every chunk, and has the contract's keys", async () => {
    const params = { ...ask("hello"), max_tokens: 4 };
    const answer = await whole(params);
    expect(answer).toMatchObject({
      object: "chat.completion",
      model: TINY,
      system_fingerprint: "tiny-random (stand-in)",
      choices: [{ index: 0, logprobs: null, message: { role: "assistant", refusal: null } }],
    });
    const { chunks } = await streamed(params);
    for (const chunk of chunks) {
      expect(chunk).toMatchObject({
        object: "chat.completion.chunk",
        id: chunks[0]?.id,
        system_fingerprint: answer.system_fingerprint,
      });
    }
  });

  it("reports its usage in a last chunk without choices", async () => {
    const params = { ...ask("count me"), max_tokens: 16 };
    // Two earlier calls with the prompt, so that both find it cached.
    await whole(params);
    const { usage } = await whole(params);
    const { chunks } = await streamed({ ...params, stream_options: { include_usage: true } });
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage });
    expect(usage?.prompt_tokens_details?.cached_tokens).toBeGreaterThan(0);
    for (const chunk of chunks.slice(0, -1)) expect(chunk.usage).toBeNull();
    const plain = await streamed(params);
    for (const chunk of plain.chunks) expect(chunk).not.toHaveProperty("usage");
  });

  it("has n separate choices, the i-th as with seed + i", async () => {
    const params = { ...ask("several"), n: 3, max_tokens: 12, logit_bias: NO_END };
    await whole(params); // From here on the prompt is cached for every call.
    const answer = await whole(params);
    const texts = answer.choices.map(({ message }) => message.content);
    expect(answer.choices.map(({ index }) => index)).toEqual([0, 1, 2]);
    expect(new Set(texts).size).toBe(3);
    expect(answer.usage?.completion_tokens).toBe(36);
    const { choices } = await streamed(params);
    expect(choices.map(({ text }) => text)).toEqual(texts);
    expect(choices.map(({ roles }) => roles)).toEqual([1, 1, 1]);
    const second = await whole({ ...params, n: 1, seed: 8 });
    expect(second.choices[0]?.message.content).toBe(texts[1]);
  });

  // holds: api-logprobs
  it("has the same logprobs streamed and at once, which spell its text", async () => {
    const params = { ...ask("scores"), max_tokens: 32, logprobs: true, top_logprobs: 3 };
    // A cached prompt is computed in other batches than a new one, which changes scores in the
    // fourth decimal. Both calls find it cached.
    await whole(params);
    const [choice] = (await whole({ ...params, logit_bias: NO_END })).choices;
    const entries = choice?.logprobs?.content ?? [];
    expect(entries).toHaveLength(32);
    for (const { logprob, top_logprobs } of entries) {
      expect(logprob).toBeLessThanOrEqual(0);
      expect(top_logprobs).toHaveLength(3);
    }
    const bytes = Buffer.from(entries.flatMap((entry) => entry.bytes ?? []));
    expect(bytes.toString("utf8")).toBe(choice?.message.content);
    const { choices } = await streamed({ ...params, logit_bias: NO_END });
    expect(choices[0]?.logprobs).toEqual(entries);
  });
});

describe("a stop string", () => {
  // holds: api-stop
  it("cuts exactly before its first occurrence, wherever tokens split it", async () => {
    const params = { ...ask("stop"), max_tokens: 48, logit_bias: LETTERS };
    const scored = await whole({ ...params, logprobs: true });
    const text = scored.choices[0]?.message.content ?? "";
    const tokens = (scored.choices[0]?.logprobs?.content ?? []).map(({ token }) => token);
    expect(tokens.join("")).toBe(text);
    expect(tokens.some((token) => token.length === 2)).toBe(true);
    const ends = tokens.map((_, i) => tokens.slice(0, i + 1).join("").length);
    // From the middle of one token over the next one into the third.
    for (const at of [5, 13, 29]) {
      const stop = text.slice((ends[at] ?? 0) - 1, (ends[at + 1] ?? 0) + 1);
      const expected = text.slice(0, text.indexOf(stop));
      const answer = await whole({ ...params, stop });
      expect(answer.choices[0]).toMatchObject({
        finish_reason: "stop",
        message: { content: expected },
      });
      const { choices } = await streamed({ ...params, stop: ["ZZZ", stop] });
      expect(choices[0]).toMatchObject({ text: expected, finish: ["stop"] });
    }
  });

  // holds: api-stop
  it("loses no text if only a prefix of it occurs", async () => {
    const params = { ...ask("stop"), max_tokens: 20, logit_bias: LETTERS };
    const text = (await whole(params)).choices[0]?.message.content ?? "";
    const { choices } = await streamed({ ...params, stop: `${text.slice(-3)}Q` });
    expect(choices[0]).toMatchObject({ text, finish: ["length"] });
  });
});

describe("UTF-8 characters of several tokens", () => {
  // Each answer is compared with its own tokens: two answers with one seed may differ in 400 draws,
  // because batching changes the last bits of scores.
  const truthOf = (logprobs: { bytes: number[] | null }[]) => {
    const bytes = logprobs.flatMap((entry) => entry.bytes ?? []);
    expect(bytes).toHaveLength(400);
    return Buffer.from(bytes).toString("utf8");
  };

  // holds: api-utf8
  it.each(["é", "€", "😀", "日本"])("is never split: %s", async (characters) => {
    const params = {
      ...ask("bytes"),
      max_tokens: 400,
      n: 2,
      logit_bias: only(characters),
      logprobs: true,
    };
    for (const { logprobs, message } of (await whole(params)).choices) {
      expect(message.content).toBe(truthOf(logprobs?.content ?? []));
    }
    const { chunks, choices } = await streamed(params);
    for (const { logprobs, text } of choices) expect(text).toBe(truthOf(logprobs));
    const texts = chunks.flatMap((chunk) => chunk.choices.map(({ delta }) => delta.content ?? ""));
    for (const text of texts) expect(text.isWellFormed()).toBe(true);
    if (characters === "é") expect(choices.map(({ text }) => text).join()).toContain("é");
  });

  // holds: api-utf8
  it("have no replacement character if their bytes are complete", async () => {
    // Greedy decoding with a repetition penalty alternates the two bytes of the character.
    const [lead, tail] = [...Buffer.from("é")];
    const params = {
      ...ask("turns"),
      temperature: 0,
      frequency_penalty: 2,
      max_tokens: 64,
      logit_bias: { [byteToken(lead ?? 0)]: 100, [byteToken(tail ?? 0)]: 94 },
    };
    const answer = await whole({ ...params, logprobs: true });
    const bytes = answer.choices[0]?.logprobs?.content?.flatMap((entry) => entry.bytes ?? []) ?? [];
    const text = answer.choices[0]?.message.content ?? "";
    expect(text).toBe(Buffer.from(bytes).toString("utf8"));
    expect(text).toContain("éé");
    expect((await streamed(params)).choices[0]?.text).toBe(text);
  });
});

// holds: api-parameters
describe("sampling parameters", () => {
  it("logit_bias alone decides, and -100 bans", async () => {
    const forced = await whole({ ...ask("x"), max_tokens: 10, logit_bias: only("Q") });
    expect(forced.choices[0]?.message.content).toBe("QQQQQQQQQQ");
    const banned = { ...only("QR"), [byteToken(0x51)]: -100 };
    const other = await whole({ ...ask("x"), max_tokens: 10, logit_bias: banned });
    expect(other.choices[0]?.message.content).toBe("RRRRRRRRRR");
  });

  it.each(["presence_penalty", "frequency_penalty"])("%s decides on repetition", async (name) => {
    const letters = async (penalty: number) => {
      const logit_bias = only("abcdefghijklmnopqrstuvwxyz");
      const params = { ...ask("again"), temperature: 0, max_tokens: 40, logit_bias };
      const { choices } = await whole({ ...params, [name]: penalty });
      return new Set(choices[0]?.message.content).size;
    };
    const [repeating, varied] = [await letters(-2), await letters(2)];
    expect(varied).toBeGreaterThan(repeating);
  });

  it("temperature 0 repeats without a seed, and a tiny top_p is greedy too", async () => {
    const params = { ...ask("cold"), seed: null, max_tokens: 16, logit_bias: NO_END };
    const first = await whole({ ...params, temperature: 0 });
    const second = await whole({ ...params, temperature: 0 });
    const nucleus = await whole({ ...params, top_p: 0 });
    expect(second.choices[0]?.message.content).toBe(first.choices[0]?.message.content);
    expect(nucleus.choices[0]?.message.content).toBe(first.choices[0]?.message.content);
  });

  it("json_object gives JSON, also where its length ends the answer", async () => {
    for (let seed = 0; seed < 4; seed++) {
      const { choices } = await whole({
        ...ask("json"),
        seed,
        max_completion_tokens: 60,
        response_format: { type: "json_object" },
      });
      expect(JSON.parse(choices[0]?.message.content ?? "")).toBeTypeOf("object");
    }
  });
});

// holds: api-tools
describe("tools", () => {
  const tools: OpenAI.ChatCompletionFunctionTool[] = [
    {
      type: "function",
      function: {
        name: "weather",
        description: "The weather of a city",
        parameters: {
          type: "object",
          properties: {
            city: { type: "string", maxLength: 12 },
            unit: { enum: ["C", "F"] },
            days: { type: "integer", minimum: 1, maximum: 9 },
          },
          required: ["city", "unit", "days"],
          additionalProperties: false,
        },
      },
    },
    { type: "function", function: { name: "now" } },
  ];
  const params = { ...ask("weather in Oslo?"), tools, temperature: 1, max_tokens: 400 };

  function checkCalls(calls: readonly OpenAI.ChatCompletionMessageToolCall[] | undefined) {
    expect(calls?.length).toBeGreaterThan(0);
    expect(new Set(calls?.map(({ id }) => id)).size).toBe(calls?.length);
    return (calls ?? []).map((call) => {
      if (call.type !== "function") throw new Error("a call of no function");
      const args = JSON.parse(call.function.arguments);
      if (call.function.name === "now") expect(args).toEqual({});
      else {
        expect(call.function.name).toBe("weather");
        expect(Object.keys(args)).toEqual(["city", "unit", "days"]);
        expect([...args.city].length).toBeLessThanOrEqual(12);
        expect(["C", "F"]).toContain(args.unit);
        expect(args.days >= 1 && args.days <= 9).toBe(true);
      }
      return call.function.name;
    });
  }

  it("that are required, named or allowed are called, whatever the model", async () => {
    const one = { ...params, parallel_tool_calls: false };
    const named = { type: "function" as const, function: { name: "weather" } };
    const allowed = { mode: "required" as const, tools: [named] };
    for (const [tool_choice, names, finish_reason] of [
      ["required", ["weather", "now"], "tool_calls"],
      [named, ["weather"], "stop"],
      [{ type: "allowed_tools" as const, allowed_tools: allowed }, ["weather"], "tool_calls"],
    ] as const) {
      const { choices } = await whole({ ...one, tool_choice });
      expect(choices[0]).toMatchObject({ finish_reason, message: { content: null } });
      const called = checkCalls(choices[0]?.message.tool_calls);
      expect(called).toHaveLength(1);
      expect(names).toContain(called[0]);
    }
  });

  it("are called in a stream by deltas that the SDK puts together", async () => {
    const stream = openai.chat.completions.stream({
      ...params,
      n: 2,
      tool_choice: "required",
      parallel_tool_calls: false,
      stream: true,
    });
    const chunks: OpenAI.ChatCompletionChunk[] = [];
    stream.on("chunk", (chunk) => chunks.push(chunk));
    const { choices } = await stream.finalChatCompletion();
    expect(choices).toHaveLength(2);
    for (const { finish_reason, message } of choices) {
      expect(finish_reason).toBe("tool_calls");
      checkCalls(message.tool_calls);
    }
    const deltas = chunks.flatMap((chunk) => chunk.choices[0]?.delta.tool_calls ?? []);
    expect(deltas.filter(({ id }) => id !== undefined).length).toBeGreaterThan(0);
    for (const { index } of deltas) expect(index).toBe(0);
  });

  it("may be called or not where the model chooses, and not at all with none", async () => {
    const auto = await whole({ ...params, max_tokens: 20 });
    expect(["stop", "length", "tool_calls"]).toContain(auto.choices[0]?.finish_reason);
    const { choices, usage } = await whole({ ...params, tool_choice: "none", max_tokens: 8 });
    expect(choices[0]?.message.tool_calls).toBeUndefined();
    expect(usage?.prompt_tokens).toBeLessThan(auto.usage?.prompt_tokens ?? 0);
  });

  it("that were called are part of the conversation, with what they answered", async () => {
    const call = { id: "call_1", type: "function" as const };
    const messages: Params["messages"] = [
      { role: "user", content: "weather in Oslo?" },
      {
        role: "assistant",
        tool_calls: [{ ...call, function: { name: "now", arguments: "{}" } }],
      },
      { role: "tool", tool_call_id: "call_1", content: "rain" },
    ];
    const { choices } = await whole({ ...params, messages, tool_choice: "required" });
    checkCalls(choices[0]?.message.tool_calls);
  });
});

// holds: api-json-schema
describe("json_schema", () => {
  const schema = {
    type: "object",
    properties: {
      city: { type: "string", enum: ["Paris", "Rome"] },
      days: { type: "array", items: { $ref: "#/$defs/day" }, minItems: 1, maxItems: 2 },
    },
    required: ["city", "days"],
    additionalProperties: false,
    $defs: { day: { type: "integer", minimum: 1, maximum: 31 } },
  };
  const response_format = {
    type: "json_schema" as const,
    json_schema: { name: "trip", schema, strict: true },
  };
  const check = (text: string | null | undefined) => {
    const { city, days } = JSON.parse(text ?? "");
    expect(["Paris", "Rome"]).toContain(city);
    expect(days.length === 1 || days.length === 2).toBe(true);
    for (const day of days) expect(day >= 1 && day <= 31).toBe(true);
  };

  it("gives what the schema says, whatever the model, whole and streamed", async () => {
    const params = { ...ask("a trip"), response_format, max_tokens: 300, temperature: 1, n: 2 };
    const answer = await openai.chat.completions.parse(params);
    for (const { message } of answer.choices) check(message.content);
    const stream = openai.chat.completions.stream({ ...params, stream: true });
    const { choices } = await stream.finalChatCompletion();
    expect(choices.map(({ finish_reason }) => finish_reason)).toEqual(["stop", "stop"]);
    for (const { message } of choices) check(message.content);
  });

  it("is refused with the place of a keyword that is not supported", async () => {
    const format = { ...response_format, json_schema: { name: "n", schema: { contains: {} } } };
    const error = await whole({ ...ask("x"), response_format: format }).catch((thrown) => thrown);
    expect(error).toMatchObject({ status: 400, param: "response_format.json_schema.schema" });
    expect(error.message).toContain("/contains");
  });
});

// holds: api-roles-parts
describe("messages", () => {
  const same = { ...ask(""), max_tokens: 12, logit_bias: NO_END };
  const textOf = async (messages: Params["messages"]) => {
    const answer = await whole({ ...same, messages });
    return [answer.choices[0]?.message.content, answer.usage?.prompt_tokens];
  };

  it("of the developer are the system's for a model without that role", async () => {
    const user = { role: "user" as const, content: "hi" };
    const asDeveloper = [{ role: "developer" as const, content: "Be brief." }, user];
    // A new prompt and a cached one round differently, so both answers use the cache.
    await textOf(asDeveloper);
    const developer = await textOf(asDeveloper);
    expect(developer).toEqual(await textOf([{ role: "system", content: "Be brief." }, user]));
    expect(developer).not.toEqual(await textOf([user]));
  });

  it("in parts are read as their lines", async () => {
    const parts = ["one", "two"].map((text) => ({ type: "text" as const, text }));
    expect(await textOf([{ role: "user", content: parts }])).toEqual(
      await textOf([{ role: "user", content: "one\ntwo" }]),
    );
  });
});

// holds: api-participant-name
describe("participant's name", () => {
  it("is in the prompt of a model whose template has no names", async () => {
    const promptTokens = async (message: object) => {
      const user = { role: "user" as const, content: "hi", ...message };
      const answer = await whole({ ...ask(""), max_tokens: 1, messages: [user] });
      return answer.usage?.prompt_tokens;
    };
    expect(await promptTokens({ name: "Alice" })).toBe(
      await promptTokens({ content: "Alice: hi" }),
    );
  });
});

// holds: api-models
describe("the models", () => {
  it("are listed in OpenAI's format, with what serves them", async () => {
    const ids: string[] = [];
    for await (const model of openai.models.list()) {
      ids.push(model.id);
      expect(model).toMatchObject({ object: "model", owned_by: "heddle", stand_in: true });
      expect(model.created).toBeGreaterThan(1_700_000_000);
      expect(model).toMatchObject({ backing: expect.stringContaining("noise"), status: "ready" });
    }
    expect(ids.sort()).toEqual([
      ..."FamilyA-1-2B FamilyA-1-4B FamilyA-1-8B FamilyB-1-2B FamilyB-1-8B".split(" "),
    ]);
  });

  it("are retrieved one by one and answer under their own ids", async () => {
    const model = await openai.models.retrieve("FamilyA-1-2B");
    expect(model).toMatchObject({ id: "FamilyA-1-2B", object: "model", context_window: 131_072 });
    const answer = await whole({ ...ask("hi"), model: "FamilyA-1-2B", max_tokens: 1 });
    expect(answer.model).toBe("FamilyA-1-2B");
  });
});
