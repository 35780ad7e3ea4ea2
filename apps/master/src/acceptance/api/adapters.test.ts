// holds: serving-adapters

import type { Model } from "@heddle/contracts/api/models";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { send } from "../../../test/http.ts";
import { NO_END, ProcessCluster } from "../../../test/process-cluster.ts";

// LoRA adapters over one base model, on a real master, worker and engine.

const BASE = { id: "loom", source: "builtin://tiny?seed=9", options: { context_tokens: 1024 } };
const POEMS = {
  id: "loom-poems",
  source: "builtin://tiny-adapter?seed=2",
  adapter: { base: "loom" },
};

/** The members of replies that the tests read. */
interface Reply {
  readonly model: string;
  readonly system_fingerprint: string;
  readonly choices: readonly { readonly message: { readonly content: string } }[];
  readonly tokens: readonly number[];
  readonly error: { readonly message: string; readonly param: string };
}

let cluster: ProcessCluster;
beforeAll(async () => {
  cluster = await ProcessCluster.start({ workers: 1 });
  expect((await register(BASE)).status).toBe(200);
});
afterAll(() => cluster.close());

function register(body: unknown): Promise<Response> {
  return send(cluster, "POST", "/api/v1/models", body);
}

async function bodyOf(reply: Response): Promise<Partial<Reply>> {
  return (await reply.json()) as Partial<Reply>;
}

async function answerOf(model: string) {
  const body = {
    model,
    messages: [{ role: "user", content: "Say something about looms." }],
    max_tokens: 24,
    temperature: 0,
    logit_bias: NO_END,
  };
  const reply = await send(cluster, "POST", "/api/v1/chat/completions", body);
  const answer = await bodyOf(reply);
  expect([reply.status, answer.error]).toEqual([200, undefined]);
  expect(answer.model).toBe(model);
  const text = answer.choices?.[0]?.message.content ?? "";
  return { text, fingerprint: answer.system_fingerprint ?? "" };
}

describe("LoRA adapters", () => {
  it("a call of an adapter's name is answered by the replica of its base", async () => {
    const before = await answerOf("loom");
    const reply = await register(POEMS);
    const view = (await reply.json()) as Model;
    const base = (await (await send(cluster, "GET", "/api/v1/models/loom")).json()) as Model;
    expect(view).toMatchObject({
      deployment: base.deployment,
      context_window: base.context_window,
      backing: "tiny.gguf with the adapter tiny-adapter.gguf",
      adapter: { base: "loom", scale: 1, sources: [POEMS.source] },
      status: "ready",
    });
    expect(base.adapter).toBeNull();
    const adapted = await answerOf("loom-poems");
    expect(adapted.text).not.toBe(before.text);
    expect(adapted.fingerprint).toBe(`${base.deployment}+tiny-adapter`);
    expect(await answerOf("loom")).toEqual(before);
    expect(await answerOf("loom-poems")).toEqual(adapted);
    const again = (await (await send(cluster, "GET", "/api/v1/models/loom")).json()) as Model;
    expect(again.replicas).toHaveLength(1);
  });

  it("adapters of one name but other files are other adapters", async () => {
    await register({ ...POEMS, id: "loom-prose", source: "builtin://tiny-adapter?seed=3" });
    const [poems, prose] = await Promise.all([answerOf("loom-poems"), answerOf("loom-prose")]);
    expect(prose.text).not.toBe(poems.text);
    const none = { ...POEMS, id: "loom-none", adapter: { base: "loom", scale: 0 } };
    expect((await register(none)).status).toBe(200);
    expect((await answerOf("loom-none")).text).toBe((await answerOf("loom")).text);
  });

  it.each([
    { what: "an unknown base", change: { adapter: { base: "no-loom" } }, param: "adapter.base" },
    {
      what: "an adapter as base",
      change: { adapter: { base: "loom-poems" } },
      param: "adapter.base",
    },
    { what: "options", change: { options: { threads: 1 } }, param: "options.threads" },
    { what: "scaling", change: { scaling: { max: 2 } }, param: "scaling" },
    {
      what: "a wide scale",
      change: { adapter: { base: "loom", scale: 1e3 } },
      param: "adapter.scale",
    },
    { what: "no base", change: { adapter: { scale: 1 } }, param: "adapter.base" },
    {
      what: "an upstream",
      change: { engine: { kind: "openai", base_url: "http://127.0.0.1:1/v1", model: "m" } },
      param: "engine",
    },
  ])("a registration with $what is refused by name", async ({ change, param }) => {
    const reply = await register({ ...POEMS, id: "loom-refused", ...change });
    expect([reply.status, (await bodyOf(reply)).error?.param]).toEqual([400, param]);
  });

  it("a file that is a whole model fails the call with the remedy", async () => {
    await register({ ...POEMS, id: "loom-wrong", source: "builtin://tiny?seed=4" });
    const body = { model: "loom-wrong", messages: [{ role: "user", content: "Hi" }] };
    const reply = await send(cluster, "POST", "/api/v1/chat/completions", body);
    const { error } = await bodyOf(reply);
    expect(reply.status).toBe(400);
    expect(error?.message).toContain("convert_lora_to_gguf.py");
    expect((await answerOf("loom")).text).not.toBe("");
  });

  it("embeddings and tokens: the one is refused, the other is the base's", async () => {
    const embedded = await send(cluster, "POST", "/api/v1/embeddings", {
      model: "loom-poems",
      input: "Hi",
    });
    expect([embedded.status, (await bodyOf(embedded)).error?.param]).toEqual([400, "model"]);
    const tokens = async (model: string) =>
      (await bodyOf(await send(cluster, "POST", "/api/v1/tokenize", { model, prompt: "Hi" })))
        .tokens;
    const expected = await tokens("loom");
    expect(expected?.length).toBeGreaterThan(0);
    expect(await tokens("loom-poems")).toEqual(expected);
  });

  it("the base's replicas stay while an adapter needs them", async () => {
    expect((await send(cluster, "DELETE", "/api/v1/models/loom")).status).toBe(200);
    expect((await answerOf("loom-poems")).text).not.toBe("");
  });
});
