import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { APIError, OpenAI } from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { childrenOf, NO_END, ProcessCluster, TINY } from "../../../test/process-cluster.ts";

// Compares the bill with the answers, and checks that no text of a call is stored.

/** Part of every prompt, which must appear nowhere afterwards. */
const SECRET = "XYZZYPLUGH";

let cluster: ProcessCluster;

beforeAll(async () => {
  cluster = await ProcessCluster.start({ masterFlags: ["--log-level", "debug"] });
});
afterAll(() => cluster.close());

const ask = (content: string, extra: object = {}) => ({
  model: TINY,
  messages: [{ role: "user" as const, content: `${SECRET}${content}` }],
  max_tokens: 20,
  logprobs: true,
  logit_bias: NO_END,
  ...extra,
});

type Params = ReturnType<typeof ask>;

/** A client's view of each call, from which the bill is computed without any server's count. */
interface Seen {
  readonly id: string;
  readonly promptTokens: number;
  /** Tokens with text, and one for each choice that ended by itself. */
  readonly completionTokens: number;
  /** Choices of a successful call. */
  readonly choices: number;
  /** Tokens in flight at the client's disconnect are billed too. */
  readonly hungUp: boolean;
}
const seen: Seen[] = [];

/**
 * In the tiny model each capital letter is a token, each frequent pair of small letters, each
 * control token and each end of a line.
 */
function promptTokens({ messages: [message] }: Params): number {
  const before = ["<|im_start|>", "us", "er", "\n"];
  const after = ["<|im_end|>", "\n", "<|im_start|>", "as", "si", "st", "an", "t", "\n"];
  expect(message?.content).toMatch(/^[A-Z]+$/);
  return before.length + message!.content.length + after.length;
}

async function whole(params: Params) {
  const { data, request_id } = await cluster.openai.chat.completions.create(params).withResponse();
  const said = data.choices.flatMap(({ logprobs }) => logprobs?.content ?? []).length;
  const ended = data.choices.filter(({ finish_reason }) => finish_reason === "stop").length;
  const id = request_id ?? "";
  seen.push({
    id,
    promptTokens: promptTokens(params),
    completionTokens: said + ended,
    choices: data.choices.length,
    hungUp: false,
  });
  return { usage: data.usage, said, id };
}

/** Reads a stream; after `stopAfter` tokens it calls the function and reads on if it can. */
async function streamed(
  params: Params,
  stopAfter = 0,
  stop: (abort: () => void) => void = () => {},
) {
  const { data, request_id } = await cluster.openai.chat.completions
    .create({ ...params, stream: true, stream_options: { include_usage: true } })
    .withResponse();
  let said = 0;
  let usage: OpenAI.CompletionUsage | undefined;
  let error: unknown;
  try {
    for await (const chunk of data) {
      said += chunk.choices.flatMap(({ logprobs }) => logprobs?.content ?? []).length;
      usage = chunk.usage ?? usage;
      if (stopAfter > 0 && said >= stopAfter) stop(() => data.controller.abort());
    }
  } catch (thrown) {
    error = thrown;
  }
  const hungUp = data.controller.signal.aborted;
  const choices = hungUp || error ? 0 : 1;
  const prompt = promptTokens(params);
  seen.push({
    id: request_id ?? "",
    promptTokens: prompt,
    completionTokens: said,
    choices,
    hungUp,
  });
  return { usage, said, error, id: request_id ?? "" };
}

/** The ledger's row of a call, once it is on the disk. */
async function rowOf(id: string) {
  const find = () => cluster.usageRows().find(({ requestId }) => requestId === id);
  await cluster.until(
    async () => readdirSync(join(cluster.data, "master")).includes("usage") && find() !== undefined,
    `the ledger has ${id}`,
  );
  const row = find();
  if (!row) throw new Error("the row went away");
  return row;
}

// holds: usage-ledger
describe("usage", () => {
  it("grows by one per single-letter token, and is the same at once and streamed", async () => {
    const one = await whole(ask("Q"));
    const fifty = await whole(ask("Q".repeat(50)));
    const stream = await streamed(ask("Q".repeat(50)));
    expect((fifty.usage?.prompt_tokens ?? 0) - (one.usage?.prompt_tokens ?? 0)).toBe(49);
    expect([fifty.said, fifty.usage?.completion_tokens]).toEqual([20, 20]);
    expect(stream.usage?.completion_tokens).toBe(stream.said);
    expect(stream.usage?.prompt_tokens).toBe(fifty.usage?.prompt_tokens);
    for (const { id, usage } of [fifty, stream]) {
      expect(await rowOf(id)).toMatchObject({
        promptTokens: usage?.prompt_tokens,
        cachedTokens: usage?.prompt_tokens_details?.cached_tokens,
        completionTokens: 20,
      });
    }
  });

  it("counts all choices, and the end token, which has no text", async () => {
    const several = await whole(ask("N", { n: 3 }));
    expect([several.said, several.usage?.completion_tokens]).toEqual([60, 60]);
    const ended = await whole(ask("END", { logit_bias: { "2": 100 } }));
    expect([ended.said, ended.usage?.completion_tokens]).toEqual([0, 1]);
    expect(await rowOf(ended.id)).toMatchObject({ completionTokens: 1 });
  });

  it("of a disconnected client's call is what was sent and a little in flight", async () => {
    const call = await streamed(ask("ABORT", { max_tokens: 4000 }), 10, (abort) => abort());
    const row = await rowOf(call.id);
    expect(row.errorCode).toBe("cancelled");
    expect(row.promptTokens).toBeGreaterThan(SECRET.length);
    expect(row.completionTokens).toBeGreaterThanOrEqual(call.said);
    expect(row.completionTokens).toBeLessThan(4000);
  });

  it("of a call whose engine died counts prompt and tokens once", async () => {
    let [engine] = childrenOf(cluster.workers[0]?.pid);
    const call = await streamed(ask("DIE", { max_tokens: 2000 }), 10, () => {
      if (engine) process.kill(engine, "SIGKILL");
      engine = undefined;
    });
    expect([call.error, call.said, call.usage?.completion_tokens]).toEqual([undefined, 2000, 2000]);
    const row = await rowOf(call.id);
    expect(row).toMatchObject({ completionTokens: 2000, promptTokens: call.usage?.prompt_tokens });
    expect(row.errorCode).toBeUndefined();
    expect(await cluster.metric("heddle_dispatch_continued_total")).toBe(1);
    await cluster.replicasReady(1);
  });

  it("of a refused prompt is nothing", async () => {
    const refused = await whole(ask("X".repeat(5000))).catch((error: unknown) => error);
    const { requestID } = refused as APIError;
    expect(await rowOf(requestID ?? "")).toMatchObject({
      errorCode: "context_length_exceeded",
      completionTokens: 0,
    });
  });

  // holds: usage-metrics
  it("in ledger and metrics equals the clients' counts, per call and in sum", async () => {
    const rows = cluster.usageRows();
    const billed = new Map(rows.map((row) => [row.requestId, row]));
    // The refused prompt was the only call that reached no engine.
    expect(rows).toHaveLength(seen.length + 1);
    let prompt = 0;
    let completion = 0;
    let choices = 0;
    for (const call of seen) {
      const row = billed.get(call.id);
      expect(row?.promptTokens).toBe(call.promptTokens);
      const isMore = call.hungUp && row!.completionTokens > call.completionTokens;
      if (!isMore) expect(row?.completionTokens).toBe(call.completionTokens);
      prompt += call.promptTokens;
      completion += isMore ? row!.completionTokens : call.completionTokens;
      choices += call.choices;
    }
    expect(await cluster.metric("vllm:prompt_tokens_total")).toBe(prompt);
    expect(await cluster.metric("vllm:generation_tokens_total")).toBe(completion);
    expect(await cluster.metric("vllm:prefix_cache_queries_total")).toBe(prompt);
    const cached = rows.reduce((total, row) => total + row.cachedTokens, 0);
    expect(await cluster.metric("vllm:prefix_cache_hits_total")).toBe(cached);
    expect(await cluster.metric("vllm:e2e_request_latency_seconds_count")).toBe(seen.length + 1);
    const failed = 1 + seen.filter((call) => call.choices === 0).length;
    expect(await cluster.metric("heddle_requests_failed_total")).toBe(failed);
    expect(await cluster.metric("vllm:request_success_total")).toBe(choices);
  });
});

describe("the prefix cache", () => {
  // holds: access-cache-salt
  it("salts: serves a project only what its own calls have computed", async () => {
    const [vision, second, speech] = await Promise.all(
      ["vision", "vision", "speech"].map((project) =>
        cluster.createKey({ role: "developer", project }),
      ),
    );
    const cachedOf = async (key = "", content = "") => {
      const params = { ...ask(content), max_tokens: 1 };
      const { usage } = await cluster.client(key).chat.completions.create(params);
      return usage?.prompt_tokens_details?.cached_tokens ?? 0;
    };
    const own = "K".repeat(200);
    await cachedOf(vision, own);
    expect(await cachedOf(speech, own)).toBe(0);
    expect(await cachedOf(second, own)).toBeGreaterThan(150);
    expect(await cachedOf(speech, own)).toBeGreaterThan(150);
    const path = "/api/v1/cluster/settings/shared_prefix_cache";
    expect((await cluster.request("PUT", path, { value: 1 })).status).toBe(200);
    const shared = "L".repeat(200);
    await cachedOf(vision, shared);
    expect(await cachedOf(speech, shared)).toBeGreaterThan(150);
  });
});

describe("prompts", () => {
  // holds: usage-private
  it("are in no log and in no file, also if they could not be read", async () => {
    const path = "/api/v1/chat/completions";
    for (const body of [`{"messages":"${SECRET}`, `${SECRET}`, { ...ask(""), model: 5 }]) {
      expect((await cluster.request("POST", path, body)).status).toBe(400);
    }
    const badRole = { ...ask(""), messages: [{ role: SECRET, content: SECRET }] };
    expect((await cluster.request("POST", path, badRole)).status).toBe(400);
    await cluster.stop(cluster.master);
    const files = readdirSync(cluster.data, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name));
    expect(files.some((file) => file.endsWith(".jsonl"))).toBe(true);
    const holders = files.filter((file) => readFileSync(file).includes(SECRET));
    expect(holders).toEqual([]);
    expect(cluster.output).toContain('"msg":"ready"');
    expect(cluster.output).not.toContain(SECRET);
    // The keys of the administrator and of the cluster are in their own files alone.
    const keyHolders = files.filter((file) => readFileSync(file).includes(cluster.adminKey));
    expect(keyHolders).toEqual([join(cluster.data, "key")]);
  });
});
