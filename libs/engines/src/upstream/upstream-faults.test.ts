// holds: engine-upstream-faults

import { eventually } from "@heddle/base/testing/eventually";
import type { UpstreamSpec } from "@heddle/contracts/models/upstream-spec";
import { afterEach, describe, expect, it } from "vitest";
import {
  delta,
  finish,
  type Handler,
  scriptedUpstream,
  stream,
  usage,
  whole,
} from "../testing/scripted-upstream.ts";
import { UpstreamPolicy } from "./upstream-policy.ts";

const MESSAGES = [{ role: "user", content: "Hi" }] as const;
const TOOL = { name: "f", parameters: '{"type": "object"}' } as const;

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

const upstream = (more: Partial<UpstreamSpec> = {}) =>
  scriptedUpstream(more, (close) => closers.push(close));

const broken: Handler = (reply) => reply.destroy();

describe("upstream: faults before the first byte", () => {
  it("a lost connection, 500 and 429 are tried again, no more than allowed", async () => {
    const { server, session } = await upstream();
    const busy: Handler = (reply) => reply.writeHead(429, { "retry-after-ms": "1" }).end();
    const failing: Handler = (reply) => reply.writeHead(500).end("{}");
    for (const fault of [broken, busy, failing]) {
      server.script.push(fault);
      expect((await session.ask({ prompt: MESSAGES })).texts).toEqual(["ok"]);
    }
    const asked = server.bodies.length;
    server.script.push(busy, busy);
    const { order, error } = await session.ask({ prompt: MESSAGES });
    expect([order, error?.code]).toEqual([["failed"], "overloaded"]);
    expect(server.bodies.length - asked).toBe(2);
  });

  it("a Retry-After that is too long is not waited for", async () => {
    const { server, session } = await upstream({ maxRetries: 5 });
    server.script.push((reply) => reply.writeHead(503, { "retry-after": "3600" }).end());
    expect((await session.ask({ prompt: MESSAGES })).error?.code).toBe("overloaded");
    expect(server.bodies).toHaveLength(2);
  });

  it("a refusal of the request names its parameter, and is not repeated", async () => {
    const { server, session } = await upstream();
    const error = { message: "too hot", param: "temperature", code: "invalid" };
    server.script.push((reply) => reply.writeHead(400).end(JSON.stringify({ error })));
    const { error: failure } = await session.ask({ prompt: MESSAGES });
    expect(failure).toMatchObject({ code: "invalid_value", param: "temperature" });
    expect(failure?.message).toContain("too hot");
    expect(server.bodies).toHaveLength(2);
  });

  // holds: no-secret-leaks
  it("a refusal that repeats the worker's key is shown without it", async () => {
    const { server, session } = await upstream({ maxRetries: 0 });
    const error = { message: `${"x".repeat(494)}sk-hidden`, param: "sk-hidden", code: 400 };
    const streamed: Handler = (reply) => void stream(reply, { error }).end();
    const failed: Handler = (reply) => void stream(reply, { error: "no sk-hidden" }).end();
    const refused: Handler = (reply) => reply.writeHead(422).end(JSON.stringify({ error }));
    for (const handler of [streamed, failed, refused]) {
      server.script.push(handler);
      const { error: shown } = await session.ask({ prompt: MESSAGES });
      expect(shown?.message).toMatch(/\*\*\*$/);
      expect(JSON.stringify(shown)).not.toContain("sk-hid");
    }
  });

  it("a refused key, an unknown model and a redirect are the operator's fault", async () => {
    const { server, session } = await upstream();
    for (const [status, said] of [
      [401, "key"],
      [404, "does not know the model"],
      [307, "redirects are not followed"],
    ] as const) {
      server.script.push((reply) =>
        reply.writeHead(status, { location: "http://10.0.0.1/" }).end(),
      );
      const { error } = await session.ask({ prompt: MESSAGES });
      expect(error?.code).toBe("answer_failed");
      expect(error?.message).toContain(said);
      expect(error?.message).not.toContain("sk-hidden");
    }
    expect(server.headers.every((each) => each.authorization === "Bearer sk-hidden")).toBe(true);
  });

  it("silence before the first byte ends the try, and comments do not count", async () => {
    const { server, session } = await upstream({ firstByteTimeoutMs: 300, maxRetries: 0 });
    server.script.push((reply) => {
      stream(reply).write(": wait\n\n");
    });
    const { error } = await session.ask({ prompt: MESSAGES });
    expect(error).toMatchObject({ code: "engine_failed" });
    expect(error?.message).toContain("silent for 300 ms");
  });
});

describe("upstream: faults after the first byte", () => {
  const faults: readonly [string, Handler, RegExp][] = [
    [
      "a lost connection",
      (reply) => {
        stream(reply, ...whole().slice(0, 2));
        setTimeout(() => reply.destroy(), 20);
      },
      /broke its answer off/,
    ],
    [
      "a stream without its end",
      (reply) => void stream(reply, ...whole().slice(0, 4)).end(),
      /before its end/,
    ],
    [
      "an end without the choice's end",
      (reply) =>
        void stream(reply, delta({ content: "x" }), { choices: [], usage }, "[DONE]").end(),
      /before its end/,
    ],
    [
      "no usage",
      (reply) => void stream(reply, ...whole().toSpliced(3, 1)).end(),
      /without its usage/,
    ],
    ["no JSON", (reply) => void stream(reply, delta({ content: "x" }), "{oops").end(), /not JSON/],
    [
      "a choice that was not asked for",
      (reply) => void stream(reply, { choices: [{ index: 4, delta: {} }] }).end(),
      /choice 4/,
    ],
    [
      "an error in the stream",
      (reply) =>
        void stream(reply, delta({ content: "x" }), { error: { message: "it burst" } }).end(),
      /it burst/,
    ],
    [
      "a page in place of a stream",
      (reply) => void reply.writeHead(200, { "content-type": "text/html" }).end("<html>"),
      /text\/html/,
    ],
    [
      "an event without end",
      (reply) => {
        reply.writeHead(200, { "content-type": "text/event-stream" });
        reply.write(`data: ${"x".repeat(2 ** 21)}`);
      },
      /event without end/,
    ],
  ];
  it.each(faults)("%s is a failure, never a success, and not repeated", async (of, fault, said) => {
    const { server, session } = await upstream({ maxRetries: 3 });
    server.script.push(fault);
    const { error, usage: counted, order } = await session.ask({ prompt: MESSAGES });
    expect(error?.code).toBe(of === "a lost connection" ? "engine_failed" : "answer_failed");
    expect(error?.message).toMatch(said);
    expect([counted, order.at(-1)]).toEqual([undefined, "failed"]);
    expect(server.bodies).toHaveLength(2);
    expect((await session.ask({ prompt: MESSAGES })).texts).toEqual(["ok"]);
  });

  it("silence within the answer ends it, and a slow answer is whole", async () => {
    const { server, session } = await upstream({ idleTimeoutMs: 4_000 });
    server.script.push((reply) => void stream(reply, ...whole().slice(0, 2)));
    const { error, texts } = await session.ask({ prompt: MESSAGES });
    expect([error?.code, texts]).toEqual(["engine_failed", ["ok"]]);
    server.script.push(async (reply) => {
      stream(reply);
      for (const piece of whole()) {
        stream(Object.assign(reply, { writeHead: () => reply }), piece);
        await new Promise((resolve) => setTimeout(resolve, 1_000));
      }
      reply.end();
    });
    expect((await session.ask({ prompt: MESSAGES })).texts).toEqual(["ok"]);
  });
});

describe("upstream: the port", () => {
  it("reasoning and calls of tools become the text that the port describes", async () => {
    const { server, session } = await upstream();
    const call = (index: number, members: object) => delta({ tool_calls: [{ index, ...members }] });
    server.script.push(
      (reply) =>
        void stream(
          reply,
          delta({ reasoning_content: "hm" }),
          delta({ content: "Now: " }),
          call(0, { id: "a", type: "function", function: { name: "f", arguments: "" } }),
          call(0, { function: { arguments: '{"x": [1,' } }),
          call(0, { function: { arguments: " 2]} " } }),
          call(1, { id: "b", function: { name: "f" } }),
          finish("tool_calls"),
          { choices: [], usage: { ...usage, completion_tokens_details: { reasoning_tokens: 1 } } },
          "[DONE]",
        ).end(),
    );
    const toolUse = { choice: "auto", names: ["f"], parallel: true } as const;
    const {
      texts,
      reasons,
      usage: counted,
    } = await session.ask({
      prompt: MESSAGES,
      tools: [TOOL],
      toolUse,
    });
    expect(texts).toEqual([
      '<think>hm</think>Now: <tool_call>\n{"name": "f", "arguments": {"x": [1, 2]}}\n</tool_call>\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
    ]);
    expect([reasons, counted?.reasoningTokens]).toEqual([["tool_calls"], 1]);
    for (const [said, ...chunks] of [
      ["may not call", call(0, { function: { name: "g", arguments: "{}" } }), finish("tool_calls")],
      [
        "not a JSON object",
        call(0, { function: { name: "f", arguments: "{" } }),
        finish("tool_calls"),
      ],
      ["was required", delta({ content: "no" }), finish()],
    ] as const) {
      server.script.push((reply) => void stream(reply, ...chunks, { usage }, "[DONE]").end());
      const required = { ...toolUse, choice: "required" } as const;
      const { error } = await session.ask({ prompt: MESSAGES, tools: [TOOL], toolUse: required });
      expect(error?.message).toContain(said);
    }
  });

  it("what the dialect does not have is refused by its name, and not sent", async () => {
    const { server, session } = await upstream({ dialect: "tgi" });
    const asked = server.bodies.length;
    for (const [param, more] of [
      ["top_k", { sampling: { topK: 4 } }],
      ["min_p", { sampling: { minP: 0.1 } }],
      ["logit_bias", { sampling: { logitBias: [{ token: 1, bias: 1 }] } }],
      ["n", { choices: 2 }],
      ["min_tokens", { minTokens: 1 }],
      ["ignore_eos", { ignoreEnd: true }],
    ] as const) {
      const { error } = await session.ask({ prompt: MESSAGES, ...more });
      expect(error).toMatchObject({ code: "unsupported_parameter", param });
    }
    expect(server.bodies).toHaveLength(asked);
  });

  // holds: access-cache-salt
  it("salts: servers that take one get it, others and probes none", async () => {
    for (const [dialect, salts] of [
      ["vllm", [undefined, "s", undefined]],
      ["openai", [undefined, undefined, undefined]],
    ] as const) {
      const { server, session } = await upstream({ dialect });
      await session.ask({ prompt: MESSAGES, submit: { cacheSalt: "s" } });
      await session.ask({ prompt: MESSAGES, submit: { cacheSalt: "" } });
      expect(server.bodies.map((body) => body["cache_salt"])).toEqual(salts);
    }
  });

  it("a cancelled request closes its connection; more than the concurrency is refused", async () => {
    const { server, session } = await upstream({ maxConcurrency: 1 });
    const gone = Promise.withResolvers<void>();
    server.script.push((reply) => {
      stream(reply, delta({ content: "x" })).on("close", gone.resolve);
    });
    const begun = Promise.withResolvers<void>();
    const first = session.submit(
      { prompt: MESSAGES },
      ({ type }) => type === "delta" && begun.resolve(),
    );
    await begun.promise;
    expect((await session.ask({ prompt: MESSAGES })).error?.code).toBe("overloaded");
    session.engine.cancel(first.id);
    await gone.promise;
    expect((await first.answer).error?.code).toBe("cancelled");
    expect((await session.ask({ prompt: MESSAGES })).texts).toEqual(["ok"]);
  });

  it("an endpoint that it lacks is the caller's fault, and it stays in service", async () => {
    const { server, session, changes } = await upstream({ maxRetries: 3 });
    for (const status of [404, 405, 501, 501]) {
      server.script.push((reply) => reply.writeHead(status).end());
      const { error } = await session.ask({ prompt: "Hi", maxTokens: 1 });
      expect(error).toMatchObject({ code: "unsupported_parameter", param: "model" });
    }
    expect(changes).toEqual([]);
    expect(server.bodies).toHaveLength(5);
  });

  it("invalid answers start a probe, and only the probe takes it out of service", async () => {
    const { server, session, changes } = await upstream({ maxRetries: 0 });
    const garbled: Handler = (reply) => void stream(reply, delta({ content: "x" }), "{").end();
    const failed: Handler = (reply) =>
      void stream(reply, { error: { code: 500, message: "no parse" } }).end();
    const refused: Handler = (reply) => void reply.writeHead(500).end();
    for (const fault of [garbled, failed, refused, refused, refused]) {
      server.script.push(fault);
      expect((await session.ask({ prompt: MESSAGES })).error?.code).toBe("answer_failed");
    }
    const asked = server.bodies.length;
    await eventually(() => server.bodies.length > asked, "it is probed");
    expect(changes).toEqual([]);
    for (let i = 0; i < 40; i++) server.script.push(garbled);
    await session.ask({ prompt: MESSAGES });
    await eventually(() => changes.length > 0, "its probes fail");
    expect(changes[0]).toContain("not JSON");
  });

  it("one that fails is out of service until it generates a token", async () => {
    const { server, session, changes } = await upstream({ maxRetries: 0 });
    for (let i = 0; i < 8; i++) server.script.push(broken);
    await eventually(async () => {
      if (changes.length === 0) await session.ask({ prompt: MESSAGES });
      return changes.length > 0;
    }, "it is out of service");
    expect(changes[0]).toContain("cannot be reached");
    server.script.length = 0;
    await eventually(() => changes.includes("recovered"), "it has recovered");
    expect(server.bodies.at(-1)).toMatchObject({ max_completion_tokens: 1 });
    expect(session.engine.load().restarts).toBe(1);
  });
});

it("upstream: it is started only where its origin is allowed and it generates", async () => {
  const policy = new UpstreamPolicy(["http://127.0.0.1:9", "https://*.example.com"]);
  for (const allowed of ["http://127.0.0.1:9/v1", "https://a.example.com/v1"]) {
    expect(() => policy.check(new URL(allowed))).not.toThrow();
  }
  for (const refused of [
    "http://127.0.0.1:10/v1",
    "http://a.example.com/v1",
    "https://example.com/v1",
    "https://a.example.com:8443/v1",
    "https://badexample.com/v1",
  ]) {
    expect(() => policy.check(new URL(refused)), refused).toThrow(/may not ask/);
  }
  expect(() => new UpstreamPolicy(["example.com"])).toThrow(/not an origin/);
  await expect(upstream({ baseUrl: "http://127.0.0.1:9/v1" })).rejects.toThrow(/may not ask/);
});
