import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { writeTinyModel } from "../../gguf/tiny-model.ts";
import { TestSession } from "../testing/test-session.ts";

const PROMPT = "The quick brown fox jumps over the lazy dog and";
const EOS_TOKEN = 2;
/** Keeps the random model from ending early by chance. */
const NO_END = [{ token: EOS_TOKEN, bias: -100 }];

describe("the llama engine on a tiny model", () => {
  let session: TestSession;
  beforeAll(async () => {
    session = await TestSession.open({ maxSequences: 8 });
  });
  afterAll(() => session.close());

  it("reports what it loaded", () => {
    expect(session.engine.info).toMatchObject({ device: "cpu", contextTokens: 4096 });
    expect(session.engine.info.parameters).toBeGreaterThan(100_000);
    expect(session.engine.load().residentBytes).toBeGreaterThan(1_000_000);
  });

  it("gives the events of a request in the order of the contract", async () => {
    const answer = await session.ask({ prompt: PROMPT, choices: 2 });
    expect(answer.order[0]).toBe("started");
    expect(answer.order.at(-1)).toBe("done");
    expect(answer.order.filter((type) => type === "finish")).toHaveLength(2);
  });

  it("answers greedily with the same text twice", async () => {
    const first = await session.ask({ prompt: PROMPT });
    const second = await session.ask({ prompt: PROMPT });
    expect(second.texts).toEqual(first.texts);
    expect(first.usage?.completionTokens).toBeGreaterThan(0);
  });

  it("gives the same text for the same seed and another for another seed", async () => {
    const sampling = { temperature: 1, topP: 0.9, seed: 42, logitBias: NO_END };
    const first = await session.ask({ prompt: PROMPT, sampling });
    const second = await session.ask({ prompt: PROMPT, sampling });
    const other = await session.ask({ prompt: PROMPT, sampling: { ...sampling, seed: 43 } });
    expect(second.texts).toEqual(first.texts);
    expect(other.texts).not.toEqual(first.texts);
  });

  it("gives each choice a text of its own, choice i that of seed + i", async () => {
    // Few tokens: over many, kernels that round differently by batch size could tip a draw.
    const ask = (seed: number, choices: number) =>
      session.ask({
        prompt: PROMPT,
        choices,
        maxTokens: 6,
        sampling: { temperature: 1, seed, logitBias: NO_END },
      });
    const both = await ask(7, 3);
    const alone = await ask(9, 1);
    expect(new Set(both.texts).size).toBe(3);
    expect(both.texts[2]).toBe(alone.texts[0]);
    expect(both.usage?.completionTokens).toBe(18);
    expect(both.usage?.promptTokens).toBe(alone.usage?.promptTokens);
  });

  it("ends with length at the token limit and counts every token", async () => {
    const answer = await session.ask({
      prompt: PROMPT,
      maxTokens: 5,
      sampling: { logitBias: NO_END },
    });
    expect(answer.reasons).toEqual(["length"]);
    expect(answer.usage?.completionTokens).toBe(5);
    expect(answer.deltaTokens).toBe(5);
  });

  it("ends with stop at the end token and gives it no text", async () => {
    const sampling = { logitBias: [{ token: EOS_TOKEN, bias: 100 }] };
    const answer = await session.ask({ prompt: PROMPT, sampling });
    expect(answer.reasons).toEqual(["stop"]);
    expect(answer.texts.join("")).toBe("");
    expect(answer.usage?.completionTokens).toBe(1);
  });

  // holds: api-samplers
  it("draws no end token before min_tokens, or at all", async () => {
    const logitBias = [{ token: EOS_TOKEN, bias: 100 }];
    const ask = { prompt: PROMPT, maxTokens: 6, sampling: { logitBias } };
    const later = await session.ask({ ...ask, minTokens: 3 });
    expect(later.reasons).toEqual(["stop"]);
    expect(later.usage?.completionTokens).toBe(4);
    const never = await session.ask({ ...ask, ignoreEnd: true });
    expect(never.reasons).toEqual(["length"]);
    expect(never.usage?.completionTokens).toBe(6);
  });

  // holds: api-samplers
  it("looks for stop strings in the text after min_tokens", async () => {
    const sampling = { logitBias: [{ token: 70, bias: 100 }] };
    const ask = { prompt: PROMPT, maxTokens: 8, sampling };
    const letters = (await session.ask(ask)).texts[0] ?? "";
    const stop = [letters.slice(0, 2)];
    const atOnce = await session.ask({ ...ask, stop });
    expect(atOnce).toMatchObject({ texts: [""], reasons: ["stop"] });
    const later = await session.ask({ ...ask, stop, minTokens: 3 });
    expect(later).toMatchObject({ texts: [letters.slice(0, 3)], reasons: ["stop"] });
    expect(later.usage?.completionTokens).toBe(5);
  });

  // holds: api-samplers
  it("draws only what top_k and min_p leave", async () => {
    const greedy = await session.ask({
      prompt: PROMPT,
      maxTokens: 8,
      sampling: { logitBias: NO_END },
    });
    const hot = { temperature: 2, seed: 5, logitBias: NO_END };
    for (const extra of [{ topK: 1 }, { minP: 1 }]) {
      const sampling = { ...hot, ...extra };
      const answer = await session.ask({ prompt: PROMPT, maxTokens: 8, sampling });
      expect(answer.texts).toEqual(greedy.texts);
    }
    const free = await session.ask({ prompt: PROMPT, maxTokens: 8, sampling: hot });
    expect(free.texts).not.toEqual(greedy.texts);
  });

  it("forces a token by logit bias", async () => {
    const [wanted] = (await session.ask({ prompt: PROMPT, topLogprobs: 0 })).logprobs[0] ?? [];
    expect(wanted).toBeDefined();
    const answer = await session.ask({
      prompt: PROMPT,
      maxTokens: 4,
      topLogprobs: 0,
      sampling: { temperature: 1, logitBias: [{ token: 70, bias: 100 }] },
    });
    const spelled = answer.logprobs[0]?.map((entry) => entry.token) ?? [];
    expect(spelled).toHaveLength(4);
    expect(new Set(spelled).size).toBe(1);
  });

  it("cuts before a stop string wherever the tokens end", async () => {
    const sampling = { temperature: 1, seed: 3, logitBias: NO_END };
    const whole = (await session.ask({ prompt: PROMPT, sampling })).texts[0] ?? "";
    const characters = [...whole];
    for (const [from, length] of [
      [3, 1],
      [5, 2],
      [8, 4],
      [2, 7],
    ] as const) {
      const stop = characters.slice(from, from + length).join("");
      const answer = await session.ask({ prompt: PROMPT, sampling, stop: [stop, "never there"] });
      expect(answer.texts[0] ?? "").toBe(whole.slice(0, whole.indexOf(stop)));
      expect(answer.reasons).toEqual(["stop"]);
      expect(answer.usage?.completionTokens).toBeLessThanOrEqual(32);
    }
  });

  it("never splits a character", async () => {
    const sampling = { temperature: 1.5, seed: 5, logitBias: NO_END };
    const asked = { prompt: "äöü€😀", maxTokens: 128, sampling, topLogprobs: 0 };
    const answer = await session.ask(asked);
    for (const delta of answer.deltas) expect(delta.isWellFormed()).toBe(true);
    const bytes = answer.logprobs[0]?.flatMap((entry) => [...entry.bytes]) ?? [];
    expect(answer.texts[0]).toBe(Buffer.from(bytes).toString("utf8"));
  });

  it("gives log-probabilities that hold the token, are sorted and sum to at most one", async () => {
    const answer = await session.ask({ prompt: PROMPT, topLogprobs: 20 });
    const entries = answer.logprobs[0] ?? [];
    expect(entries.length).toBeGreaterThan(0);
    for (const { token, logprob, top } of entries) {
      expect(top).toHaveLength(20);
      expect(top[0]).toMatchObject({ token, logprob });
      const values = top.map((entry) => entry.logprob);
      expect(values).toEqual(values.toSorted((a, b) => b - a));
      expect(values.reduce((sum, value) => sum + Math.exp(value), 0)).toBeLessThanOrEqual(1 + 1e-6);
    }
  });

  it("gives a control token its name and no bytes, as the text has none of it", async () => {
    const logitBias = [3, 70].map((token) => ({ token, bias: 100 }));
    const sampling = { temperature: 1, seed: 1, frequencyPenalty: 2, logitBias };
    const answer = await session.ask({ prompt: PROMPT, maxTokens: 40, topLogprobs: 20, sampling });
    const entries = answer.logprobs[0] ?? [];
    const names = entries.map(({ token }) => token);
    expect(names).toContain("<pad>");
    expect(new Set(names).size).toBe(2);
    const bytes = entries.flatMap((entry) => [...entry.bytes]);
    expect(Buffer.from(bytes).toString("utf8")).toBe(answer.texts[0]);
    expect(entries.find(({ token }) => token === "<pad>")?.bytes).toEqual([]);
  });

  it("gives log-probabilities only for tokens before a stop string", async () => {
    const sampling = { temperature: 1, seed: 3, logitBias: NO_END };
    const whole = (await session.ask({ prompt: PROMPT, sampling })).texts[0] ?? "";
    const stop = [...whole].slice(6, 9).join("");
    const answer = await session.ask({ prompt: PROMPT, sampling, stop: [stop], topLogprobs: 1 });
    const spelled = answer.logprobs[0]?.map((entry) => entry.token).join("") ?? "";
    expect(spelled.startsWith(answer.texts[0] ?? "")).toBe(true);
    expect(spelled.length).toBeLessThan(whole.length);
  });

  // holds: api-samplers
  it("takes turns between two tokens where repetition is penalized", async () => {
    const logitBias = [70, 71].map((token) => ({ token, bias: 100 }));
    const answer = await session.ask({
      prompt: PROMPT,
      maxTokens: 40,
      topLogprobs: 0,
      sampling: { frequencyPenalty: 2, logitBias },
    });
    const spelled = answer.logprobs[0]?.map((entry) => entry.token) ?? [];
    const first = spelled.filter((token) => token === spelled[0]).length;
    expect(Math.abs(first - (spelled.length - first))).toBeLessThanOrEqual(10);
  });

  // holds: api-schema-within-limit
  it("writes whole JSON where it is asked for JSON, also of a schema without a depth", async () => {
    const kids = { type: "array", minItems: 1, items: { anyOf: [{ $ref: "#" }, { const: 0 }] } };
    const schema = JSON.stringify({ type: "object", properties: { kids }, required: ["kids"] });
    const reasons = new Set<unknown>();
    for (const format of ["json_object", { kind: "json_schema", schema }] as const) {
      for (const seed of [1, 2, 3, 4]) {
        const sampling = { temperature: 1, seed };
        const answer = await session.ask({ prompt: PROMPT, format, maxTokens: 100, sampling });
        expect(typeof JSON.parse(answer.texts[0] ?? "")).toBe("object");
        expect(answer.usage?.completionTokens).toBeLessThanOrEqual(100);
        for (const reason of answer.reasons) reasons.add(reason);
      }
    }
    expect(reasons).toContain("length");
  });

  it("writes what a JSON schema asks for beside requests of free text", async () => {
    const schema = JSON.stringify({
      type: "object",
      properties: {
        kind: { enum: ["cat", "dog"] },
        age: { type: "integer", minimum: 3, maximum: 40 },
      },
      required: ["kind", "age"],
    });
    const format = { kind: "json_schema", schema } as const;
    const asks = [1, 2, 3, 4].map((seed) =>
      session.ask({
        prompt: PROMPT,
        format,
        choices: 2,
        maxTokens: 200,
        sampling: { temperature: 1, seed },
      }),
    );
    const free = session.ask({ prompt: PROMPT, maxTokens: 20 });
    for (const { texts, reasons } of await Promise.all(asks)) {
      expect(reasons).toEqual(["stop", "stop"]);
      for (const text of texts) {
        const { kind, age } = JSON.parse(text);
        expect(["cat", "dog"]).toContain(kind);
        expect(Number.isInteger(age) && age >= 3 && age <= 40).toBe(true);
      }
    }
    expect((await free).usage?.completionTokens).toBe(20);
  });

  it("calls tools where they are required", async () => {
    const parameters = JSON.stringify({
      type: "object",
      properties: { city: { type: "string", maxLength: 5 } },
      required: ["city"],
    });
    const tools = [
      { name: "weather", parameters },
      { name: "now", parameters: '{"properties":{}}' },
    ];
    const ask = (choice: "auto" | "required", names: readonly string[]) =>
      session.ask({
        prompt: [{ role: "user", content: "Hi" }],
        tools,
        maxTokens: 300,
        sampling: { temperature: 1, seed: 5 },
        toolUse: { choice, names, parallel: false },
      });
    const form = /^<tool_call>\n\{"name": "(\w+)", "arguments": (.*)\}\n<\/tool_call>$/s;
    const [, name, args] = form.exec((await ask("required", ["weather"])).texts[0] ?? "") ?? [];
    expect(name).toBe("weather");
    expect([...JSON.parse(args ?? "").city].length).toBeLessThanOrEqual(5);
    const now = await ask("required", ["now"]);
    expect(now.texts[0]).toBe('<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>');
    const free = await ask("auto", ["weather", "now"]);
    expect(free.texts[0]).not.toBe("");
  });

  it("refuses a schema that it cannot compile, with its place", async () => {
    const refused = async (schema: object) => {
      const format = { kind: "json_schema", schema: JSON.stringify(schema) } as const;
      return (await session.ask({ prompt: PROMPT, format })).error;
    };
    const param = "response_format.json_schema.schema";
    expect(await refused({ properties: { a: { contains: {} } } })).toMatchObject({
      code: "invalid_value",
      param,
      message: expect.stringContaining("/properties/a/contains"),
    });
    // Its automaton has 2^n states.
    expect(await refused({ type: "string", pattern: "a.{30}$" })).toMatchObject({
      code: "invalid_value",
      param,
      message: expect.stringMatching(/states|takes more than/),
    });
    const { texts } = await session.ask({ prompt: PROMPT, format: "json_object", maxTokens: 5 });
    expect(texts[0]).toMatch(/^\{/);
  });

  it("answers a chat through the model's template", async () => {
    const answer = await session.ask({
      prompt: [{ role: "user", content: "Hello" }],
      maxTokens: 4,
    });
    expect(answer.order.at(-1)).toBe("done");
    expect(answer.usage?.promptTokens).toBeGreaterThan(5);
  });

  it("refuses a prompt that leaves no room, with the counts", async () => {
    const answer = await session.ask({ prompt: Array.from({ length: 4096 }, () => 70) });
    expect(answer.order).toEqual(["failed"]);
    expect(answer.error?.code).toBe("context_length_exceeded");
    expect(answer.error?.message).toMatch(/4096 tokens.*4096 tokens/);
  });

  // holds: api-long-prompt
  it("refuses a text before tokenizing it where any tokens of it would be too many", async () => {
    const text = "x".repeat(4_000_000);
    const blanks = " \n".repeat(2_000_000);
    for (const prompt of [text, [{ role: "user", content: text } as const], blanks]) {
      const { error } = await session.ask({ prompt });
      expect(error).toMatchObject({
        code: "context_length_exceeded",
        param: typeof prompt === "string" ? "prompt" : "messages",
        message: expect.stringMatching(/4096 tokens.* has at least \d+ tokens/),
      });
    }
  });

  it("refuses tokens outside of the vocabulary, by parameter", async () => {
    const prompt = await session.ask({ prompt: [1_000_000] });
    expect(prompt.error).toMatchObject({ code: "invalid_value", param: "prompt" });
    const bias = await session.ask({
      prompt: PROMPT,
      sampling: { logitBias: [{ token: -1, bias: 1 }] },
    });
    expect(bias.error).toMatchObject({ code: "invalid_value", param: "logit_bias" });
    expect(bias.error?.message).toMatch(
      /^Invalid value for 'logit_bias': a token id is not in 0\.\.\d+/,
    );
    const empty = await session.ask({ prompt: [] });
    expect(empty.error).toMatchObject({ code: "invalid_value" });
    const none = await session.ask({ prompt: PROMPT, choices: 0 });
    expect(none.error).toMatchObject({ code: "invalid_value", param: "n" });
    const zero = await session.ask({ prompt: PROMPT, maxTokens: -1 });
    expect(zero.error).toMatchObject({ code: "invalid_value", param: "max_tokens" });
  });

  // holds: api-long-prompt-others
  it("tokenizes a long text without stopping the stream of others", async () => {
    let deltas = 0;
    const other = session.submit(
      { prompt: PROMPT, maxTokens: 300, sampling: { logitBias: NO_END } },
      (event) => {
        if (event.type === "delta") deltas++;
      },
    );
    const long = await session.ask({ prompt: "many words of text ".repeat(20_000) });
    expect(long.error?.code).toBe("context_length_exceeded");
    await other.answer;
    expect(deltas).toBeGreaterThan(0);
  });

  it("frees the slot of a cancelled request", async () => {
    const started = Promise.withResolvers<void>();
    const { id, answer } = session.submit(
      { prompt: PROMPT, maxTokens: 3000, sampling: { logitBias: NO_END } },
      (event) => {
        if (event.type === "delta") started.resolve();
      },
    );
    await started.promise;
    session.engine.cancel(id);
    const ended = await answer;
    expect(ended.error?.code).toBe("cancelled");
    expect(ended.error?.usage?.completionTokens).toBeGreaterThan(0);
    await session.ask({ prompt: PROMPT, maxTokens: 1 });
    expect(session.engine.load().running).toBe(0);
  });

  it("fails a request at its deadline", async () => {
    const answer = await session.ask({
      prompt: PROMPT,
      maxTokens: 3900,
      sampling: { logitBias: NO_END },
      submit: { deadlineMs: 30 },
    });
    expect(answer.error?.code).toBe("deadline_exceeded");
  });
});

// holds: engine-bad-file
describe("a model file that says something else", () => {
  let directory: string;
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), "heddle-patched-"));
  });
  afterAll(() => rm(directory, { recursive: true }));

  /** The tiny model with some bytes of its file changed. */
  async function patched(change: (bytes: Buffer) => void): Promise<string> {
    const path = join(directory, "patched.gguf");
    await writeTinyModel(path);
    const bytes = await readFile(path);
    change(bytes);
    await writeFile(path, bytes);
    return path;
  }

  it("of its layers ends the process; the error has signal and output but no path", async () => {
    const key = "llama.block_count";
    const path = await patched((bytes) => {
      // Four bytes for the type come between the name and the number.
      bytes.writeUInt32LE(1_000_000, bytes.indexOf(key) + key.length + 4);
    });
    await expect(TestSession.open({}, path)).rejects.toMatchObject({
      code: "engine_failed",
      message: expect.stringMatching(
        /^the engine process ended by signal SIGABRT; it wrote: [\w.-]+:\d+: GGML_ASSERT\([^|]*$/,
      ),
    });
  });

  it.each([0, 2 ** 32 - 1])("of a context of %d tokens is refused for that", async (tokens) => {
    const key = "llama.context_length";
    const path = await patched((bytes) => {
      bytes.writeUInt32LE(tokens, bytes.indexOf(key) + key.length + 4);
    });
    await expect(TestSession.open({}, path)).rejects.toMatchObject({
      code: "invalid_value",
      message: expect.stringContaining(`patched.gguf says that its context has ${tokens} tokens`),
    });
  });

  // holds: engine-nan
  it("of its weights, no numbers, fails its requests in place of empty answers", async () => {
    // The output matrix comes last, and has fewer bytes: no score is a number then.
    const path = await patched((bytes) => bytes.fill(0xff, bytes.length - 100_000));
    const session = await TestSession.open({}, path);
    for (const ask of [
      { sampling: { temperature: 0 } },
      { sampling: { temperature: 1 }, choices: 3, topLogprobs: 2 },
      { format: "json_object" as const },
    ]) {
      const { error, order, texts } = await session.ask({ prompt: PROMPT, ...ask });
      expect(order).toEqual(["started", "failed"]);
      expect(error).toMatchObject({
        code: "engine_failed",
        message: expect.stringMatching(/^the model's scores .* are not numbers: .*damaged/),
        usage: { completionTokens: 0 },
      });
      expect(texts.join("")).toBe("");
    }
    expect(session.engine.load()).toMatchObject({ running: 0, waiting: 0 });
    expect(session.crashes).toEqual([]);
    await session.close();
  });

  // holds: api-long-prompt-others
  it("of how it cuts text into words survives a run of 100,000 letters", async () => {
    // As BLOOM is cut, by patterns that call themselves for each character; the name is as long.
    const path = await patched((bytes) => {
      bytes.write("bloom", bytes.indexOf("gpt-2", bytes.indexOf("tokenizer.ggml.pre")));
    });
    const options = { contextTokens: 8192, kvTokens: 8192, maxSequences: 1 };
    const session = await TestSession.open(options, path);
    // The longest token is <|im_start|>, so the bytes alone do not show that these are too many.
    const { error } = await session.ask({ prompt: "A".repeat(98_000) });
    expect(error).toMatchObject({
      code: "context_length_exceeded",
      message: expect.stringMatching(/has at least \d+ tokens/),
    });
    const answer = await session.ask({ prompt: PROMPT, maxTokens: 1 });
    expect(answer.usage?.completionTokens).toBe(1);
    expect(session.crashes).toEqual([]);
    await session.close();
  });
});
