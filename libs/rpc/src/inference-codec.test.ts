// holds: api-samplers

import { AppError, ERROR_TABLE, type ErrorCode } from "@heddle/base/errors";
import type {
  EngineEvent,
  EngineRequest,
  GenerateRequest,
  SamplingOptions,
} from "@heddle/contracts/engine";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { decodeEvent, decodeWork, encodeEvent, encodeWork } from "./inference-codec.ts";
import { sessionMethod } from "./proto.ts";

const uint32 = fc.integer({ min: 0, max: 2 ** 32 - 1 });
const text = fc.string({ unit: "grapheme" });
const real = fc.double();
const bytes = fc.array(fc.integer({ min: 0, max: 255 }), { maxLength: 8 });
const codes = Object.keys(ERROR_TABLE) as ErrorCode[];
const optional = <T>(key: string, value: fc.Arbitrary<T>) =>
  fc.option(value, { nil: undefined }).map((v) => (v === undefined ? {} : { [key]: v }));
const merged = (...parts: fc.Arbitrary<object>[]) =>
  fc.tuple(...parts).map((values) => Object.assign({}, ...values));

const usage = fc.record({
  promptTokens: uint32,
  cachedTokens: uint32,
  completionTokens: uint32,
  reasoningTokens: uint32,
});
const alternative = fc.record({ token: text, bytes, logprob: real });
const logprob = fc.record({
  token: text,
  bytes,
  logprob: real,
  top: fc.array(alternative, { maxLength: 3 }),
});
const event: fc.Arbitrary<EngineEvent> = fc.oneof(
  merged(
    fc.record({ type: fc.constant("prompt" as const), id: uint32, text }),
    optional("logprobs", fc.array(logprob, { minLength: 1, maxLength: 3 })),
  ),
  fc.record({
    type: fc.constant("started" as const),
    id: uint32,
    promptTokens: uint32,
    cachedTokens: uint32,
    queuedMs: real,
  }),
  merged(
    fc.record({
      type: fc.constant("delta" as const),
      id: uint32,
      choice: uint32,
      text,
      tokens: uint32,
    }),
    optional("tokenIds", fc.array(uint32, { minLength: 1, maxLength: 3 })),
    optional("isCut", fc.constant(true)),
    optional("logprobs", fc.array(logprob, { minLength: 1, maxLength: 3 })),
  ),
  merged(
    fc.record({
      type: fc.constant("finish" as const),
      id: uint32,
      choice: uint32,
      reason: fc.constantFrom("stop", "length", "tool_calls", "content_filter"),
    }),
    optional("stop", text),
  ),
  fc.record({
    type: fc.constant("embedding" as const),
    id: uint32,
    input: uint32,
    values: fc.float32Array({ maxLength: 4 }),
  }),
  merged(
    fc.record({ type: fc.constant("reading" as const), id: uint32, count: uint32 }),
    optional("tokens", fc.int32Array({ minLength: 1, maxLength: 4 })),
    optional("pieces", fc.array(text, { minLength: 1, maxLength: 3 })),
    optional("text", text),
  ),
  fc.record({ type: fc.constant("done" as const), id: uint32, usage }),
  fc.record({
    type: fc.constant("failed" as const),
    id: uint32,
    error: merged(
      fc.record({ code: fc.constantFrom(...codes), message: text }),
      optional("param", fc.string({ minLength: 1 })),
      optional("usage", usage),
    ),
  }),
) as fc.Arbitrary<EngineEvent>;

const toolCall = fc.record({
  id: text,
  type: fc.constant("function" as const),
  function: fc.record({ name: text, arguments: text }),
});
const message = merged(
  fc.record({
    role: fc.constantFrom("system", "developer", "user", "assistant", "tool"),
    content: fc.option(text),
  }),
  optional("name", text),
  optional("toolCalls", fc.array(toolCall, { minLength: 1, maxLength: 2 })),
  optional("toolCallId", text),
);
const tool = merged(
  fc.record({ name: text, parameters: fc.json() }),
  optional("description", fc.string({ minLength: 1 })),
);
const input = fc.oneof(
  merged(
    fc.record({ kind: fc.constant("chat"), messages: fc.array(message, { maxLength: 3 }) }),
    optional("tools", fc.array(tool, { minLength: 1, maxLength: 2 })),
    optional("effort", fc.constantFrom("none", "minimal", "xhigh")),
  ),
  merged(fc.record({ kind: fc.constant("text"), text }), optional("suffix", text)),
  merged(
    fc.record({ kind: fc.constant("tokens"), tokens: fc.array(uint32, { maxLength: 5 }) }),
    optional("suffix", text),
  ),
);
// A new field of the contract needs an arbitrary here, so that its roundtrip is tested.
const sampling = fc.record(
  {
    temperature: real,
    topP: real,
    presencePenalty: real,
    frequencyPenalty: real,
    logitBias: fc.array(fc.record({ token: uint32, bias: real }), { maxLength: 3 }),
    seed: uint32,
    topK: fc.integer({ min: 1, max: 2 ** 32 - 1 }),
    minP: fc.constantFrom(0.05, 1),
    repetitionPenalty: fc.constantFrom(0.5, 1, 1.1),
  } satisfies Record<keyof SamplingOptions, fc.Arbitrary<unknown>>,
  { requiredKeys: ["temperature", "topP", "presencePenalty", "frequencyPenalty", "logitBias"] },
);
const request = fc.record(
  {
    input,
    sampling,
    choices: uint32,
    stop: fc.array(text, { maxLength: 4 }),
    format: fc.oneof(
      fc.constantFrom("text" as const, "json_object" as const),
      fc.record({ kind: fc.constant("json_schema" as const), schema: fc.json() }),
    ),
    toolUse: fc.record({
      choice: fc.constantFrom("auto", "required"),
      names: fc.array(text, { maxLength: 2 }),
      parallel: fc.boolean(),
    }),
    maxTokens: uint32,
    minTokens: fc.integer({ min: 1, max: 2 ** 32 - 1 }),
    ignoreEnd: fc.constant(true),
    deterministic: fc.boolean(),
    topLogprobs: uint32,
    echo: fc.constant(true),
    reasoningTokens: uint32,
    adapter: fc.record({
      weights: fc.record({ key: text, file: text, sources: fc.array(text, { maxLength: 2 }) }),
      scale: real,
    }),
    sent: fc.array(
      fc.record(
        {
          tokens: fc.array(uint32, { maxLength: 3 }),
          characters: uint32,
          isFinished: fc.boolean(),
          isCut: fc.constant(true),
        },
        { requiredKeys: ["tokens", "characters", "isFinished"] },
      ),
      { minLength: 1, maxLength: 2 },
    ),
  } satisfies Record<Exclude<keyof GenerateRequest, "kind">, fc.Arbitrary<unknown>>,
  { requiredKeys: ["input", "sampling", "choices", "stop", "format"] },
) as fc.Arbitrary<EngineRequest>;
const plainInput = fc.oneof(
  fc.record({ kind: fc.constant("text" as const), text }),
  fc.record({ kind: fc.constant("tokens" as const), tokens: fc.array(uint32, { maxLength: 5 }) }),
);
const embedding = fc.record({
  kind: fc.constant("embed" as const),
  inputs: fc.array(plainInput, { minLength: 1, maxLength: 3 }),
});

/** Over encoded bytes, not only over objects. */
function throughEvents(events: readonly EngineEvent[]): EngineEvent[] {
  const frame = sessionMethod.responseSerialize({ events: events.map(encodeEvent) });
  return sessionMethod.responseDeserialize(frame).events.map(decodeEvent);
}

function throughRequest(value: EngineRequest): EngineRequest {
  const frame = sessionMethod.requestSerialize({
    start: { id: 1, ...encodeWork(value) },
  });
  const decoded = sessionMethod.requestDeserialize(frame).start;
  if (!decoded) throw new Error("the request was lost");
  return decodeWork(decoded);
}

describe("inference codec: roundtrip", () => {
  test("events of every type are equal", () => {
    fc.assert(
      fc.property(fc.array(event, { maxLength: 4 }), (events) => {
        expect(throughEvents(events)).toEqual(events);
      }),
    );
  });

  test("requests of every form are equal", () => {
    fc.assert(
      fc.property(fc.oneof(request, embedding), (value) => {
        expect(throughRequest(value)).toEqual(value);
      }),
    );
  });

  test("a negative infinite log-probability stays infinite", () => {
    const top = [{ token: "b", bytes: [98], logprob: Number.NEGATIVE_INFINITY }];
    const entry = { token: "a", bytes: [97], logprob: -0.5, top };
    const delta: EngineEvent = {
      type: "delta",
      id: 1,
      choice: 0,
      text: "a",
      tokens: 1,
      logprobs: [entry],
    };
    expect(throughEvents([delta])).toEqual([delta]);
  });
});

describe("inference codec: unknown values are refused with their name", () => {
  const refused = (action: () => unknown, word: string) => {
    expect(action).toThrow(AppError);
    expect(action).toThrow(new RegExp(`unknown ${word}.*same version`));
  };

  test("an unknown finish reason, error code and event", () => {
    refused(() => decodeEvent({ id: 1, finish: { choice: 0, reason: "bored" } }), "finish reason");
    const failed = { code: "nope", message: "", param: "", usage: null };
    refused(() => decodeEvent({ id: 1, failed }), "error code");
    refused(() => decodeEvent({ id: 1 }), "event");
  });

  test("an unknown role, format and input", () => {
    const wire = (change: object) => {
      const { request: valid } = encodeWork({
        input: { kind: "chat", messages: [{ role: "user", content: "a" }] },
        sampling: {
          temperature: 1,
          topP: 1,
          presencePenalty: 0,
          frequencyPenalty: 0,
          logitBias: [],
        },
        choices: 1,
        stop: [],
        format: "text",
      });
      const frame = sessionMethod.requestSerialize({
        start: { id: 1, request: { ...valid, ...change } },
      });
      const decoded = sessionMethod.requestDeserialize(frame).start;
      if (!decoded) throw new Error("the request was lost");
      return () => decodeWork(decoded);
    };
    refused(wire({ chat: { messages: [{ role: "king" }] } }), "role");
    refused(wire({ format: "xml" }), "output format");
    refused(wire({ chat: null }), "input");
    expect(wire({})).not.toThrow();
  });
});
