// holds: shard-workers, shard-moves

import { type ChildProcess, execFile } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { eventually } from "@heddle/base/testing/eventually";
import { largestDifference } from "@heddle/base/testing/largest-difference";
import { programOf } from "@heddle/base/testing/programs";
import type { Model } from "@heddle/contracts/api/models";
import { writeTinyModel } from "@heddle/engines/gguf/tiny-model";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { NO_END, ProcessCluster } from "../../../test/process-cluster.ts";

const ID = "sharded";
const WHOLE = "whole";
/** A model whose stages send bf16. */
const SHORT = "short";
const PROMPT = "hello there, this is a prompt";
/** MiB of the first two workers: a stage's process, and two of the six blocks. */
const MEMORY_MIB = "112";
/** The same where the process is that of the last stage. */
const LAST_MEMORY_MIB = "183";
/** The last one starts when the others have divided the model. */
const WORKERS = [0, 1, 2, 3];
/** A clear difference of log-probabilities: what rounding changes is far less. */
const CLEAR = 0.02;
/** The largest difference of embeddings: rounding makes some 1e-4, another input about 0.1. */
const NEAR = 2e-3;
/** This many tokens at the beginning of an answer must be clear. */
const CLEAR_TOKENS = 30;
const LONG_TOKENS = 400;
/** It is 2 to 3 s on two processors; a loaded machine takes longer. */
const MAX_PAUSE_MS = 10_000;
/** So that the whole model's cache is one pool too. */
const OPTIONS = { context_tokens: 4096, kv_tokens: 8192, max_sequences: 4, threads: 1 };

describe("a model that workers divide", () => {
  let cluster: ProcessCluster;
  let source = "";
  let bytes = 0;
  /** Indexed by the number of the worker. */
  const processes: ChildProcess[] = [];
  beforeAll(async () => {
    cluster = await ProcessCluster.start({ workers: 0, isBare: true });
    for (const index of WORKERS.slice(0, 3)) await start(index);
    const file = join(cluster.data, "six.gguf");
    await writeTinyModel(file, { blocks: 6 });
    source = `file://${file}`;
    bytes = statSync(file).size;
  });
  afterAll(() => cluster?.close());

  const deploy = async (id: string, placement: string, more: object = {}) => {
    const weights = { file: "six.gguf", sources: [source], size_bytes: bytes };
    const body = { id, weights, options: { ...OPTIONS, ...more }, placement };
    const reply = await cluster.request("POST", "/api/v1/models", body);
    expect(await reply.text()).toContain('"object":"model"');
    await ready(id);
  };
  const ready = (id: string) => eventually(async () => (await model(id)).status === "ready");
  const model = async (id: string) => {
    const reply = await cluster.request("GET", `/api/v1/models/${id}`);
    return (await reply.json()) as Model;
  };
  const ask = (id: string, seed: number) => ({
    model: id,
    prompt: `${seed}: ${PROMPT}`,
    max_tokens: 40,
    temperature: 0,
  });
  const answer = async (id: string, seed: number) => {
    const { choices } = await cluster.openai.completions.create({ ...ask(id, seed), logprobs: 2 });
    return choices[0];
  };
  /** The answer of the model with a LoRA adapter. */
  const adapted = async (base: string) => {
    const id = `${base}-adapted`;
    const body = { id, source: "builtin://tiny-adapter?seed=2", adapter: { base } };
    const reply = await cluster.request("POST", "/api/v1/models", body);
    expect(await reply.text()).toContain('"object":"model"');
    const found = await answer(id, 1);
    await cluster.request("DELETE", `/api/v1/models/${id}`);
    return found;
  };
  /** A long answer, and where those of its tokens begin that rounding may change. */
  const longAnswer = async (seed: number) => {
    const asked = { ...ask(ID, seed), max_tokens: LONG_TOKENS, logit_bias: NO_END, logprobs: 2 };
    const [choice] = (await cluster.openai.completions.create(asked)).choices;
    const { top_logprobs: tops, token_logprobs: scores, text_offset: offsets } = choice!.logprobs!;
    const isClear = (score: number, i: number) => {
      const [best = 0, next = Number.NaN] = Object.values(tops![i]!).toSorted((a, b) => b - a);
      return score === best && best - next > CLEAR;
    };
    const unclear = offsets!.filter((_, i) => !isClear(scores![i]!, i));
    const isClearAtFirst = (unclear[0] ?? Number.POSITIVE_INFINITY) >= offsets![CLEAR_TOKENS]!;
    return { text: choice!.text, offsets: offsets!, unclear, isClearAtFirst };
  };
  /** Compares all of a text with a long answer, up to a place where rounding has chosen another token. */
  const expectSame = (text: string, whole: Awaited<ReturnType<typeof longAnswer>>) => {
    if (text === whole.text) return;
    let same = 0;
    while (text[same] === whole.text[same]) same++;
    const token = whole.offsets.findLast((offset) => offset <= same);
    expect(whole.unclear, `another text from ${same} on`).toContain(token);
  };

  /** What else a model may be asked for. */
  const others = async (id: string) => {
    const schema = { type: "object", properties: { is: { type: "boolean" } }, required: ["is"] };
    const { choices } = await cluster.openai.chat.completions.create({
      model: id,
      messages: [{ role: "user", content: "yes or no" }],
      response_format: {
        type: "json_schema",
        json_schema: { name: "truth", schema: { ...schema, additionalProperties: false } },
      },
      n: 2,
      logprobs: true,
      temperature: 0,
    });
    const prompt = ["one", "two", "three"];
    const echo = { model: id, prompt, echo: true, max_tokens: 1, logit_bias: NO_END };
    const listed = await cluster.openai.completions.create(echo);
    const { data } = await cluster.openai.embeddings.create({ model: id, input: prompt });
    return {
      truths: choices.map(({ message }) => typeof JSON.parse(message.content ?? "").is),
      scored: choices.map(({ logprobs }) => (logprobs?.content ?? []).length > 0),
      begins: listed.choices.map(({ text }, i) => text.startsWith(prompt[i]!)),
      vectors: data.map(({ embedding }) => embedding),
    };
  };

  /** What the command line prints. */
  const heddle = async (...args: string[]) => {
    const connection = { HEDDLE_ENDPOINT: cluster.url, HEDDLE_API_KEY: cluster.adminKey };
    const env = { ...process.env, ...connection };
    const running = promisify(execFile)(process.execPath, [programOf("cli"), ...args], { env });
    return (await running).stdout;
  };
  const stagesOf = async (id: string) => (await model(id)).replicas[0]?.stages ?? [];
  const stageNodes = async () => {
    const { replicas } = await model(ID);
    return replicas[0]?.stages?.map(({ node }) => node) ?? [];
  };
  /** The place of a node among the cluster's processes. */
  const indexOf = (node: string | undefined) => nodeIds().indexOf(node ?? "");
  const start = async (index: number) => {
    const name = `worker-${index + 1}`;
    const memory = index < 2 ? MEMORY_MIB : LAST_MEMORY_MIB;
    processes[index] = await cluster.startWorker(["--memory-mib", memory, "--name", name], name);
  };
  /** Streams a long answer, and kills the worker once it has begun. */
  const killedAmid = async (seed: number, worker: ChildProcess) => {
    const stream = await cluster.openai.completions.create({
      ...ask(ID, seed),
      max_tokens: LONG_TOKENS,
      logit_bias: NO_END,
      stream: true,
      stream_options: { include_usage: true },
    });
    let text = "";
    let completed = 0;
    let pauseMs = 0;
    let lastMs = performance.now();
    for await (const { choices, usage } of stream) {
      completed = usage?.completion_tokens ?? 0;
      const isFirst = text === "";
      const nowMs = performance.now();
      if (!isFirst) pauseMs = Math.max(pauseMs, nowMs - lastMs);
      lastMs = nowMs;
      text += choices[0]?.text ?? "";
      if (isFirst && text !== "") await cluster.stop(worker, "SIGKILL");
    }
    return { text, completed, pauseMs };
  };
  const spareIndex = (used: readonly string[]) => nodeIds().findIndex((id) => !used.includes(id));
  const nodeIds = () =>
    WORKERS.map((index) =>
      readFileSync(join(cluster.data, `worker-${index + 1}`, "node-id"), "utf8").trim(),
    );

  it("is served by three of them, as by one", async () => {
    await deploy(WHOLE, "whole");
    const expected = await answer(WHOLE, 1);
    const expectedAdapted = await adapted(WHOLE);
    const expectedOthers = await others(WHOLE);
    await cluster.request("DELETE", `/api/v1/models/${WHOLE}`);
    await deploy(SHORT, "sharded", { stage_dtype: "bf16" });
    const scores = [expected, await answer(SHORT, 1)].map((each) => each?.logprobs?.token_logprobs);
    const difference = Math.abs((scores[0]?.[0] ?? 0) - (scores[1]?.[0] ?? 0));
    expect(difference).toBeGreaterThan(0);
    expect(difference).toBeLessThan(0.5);
    await cluster.request("DELETE", `/api/v1/models/${SHORT}`);
    // A worker has the memory for its weights, but not for its cache and its process too.
    expect(bytes).toBeLessThan(Number(MEMORY_MIB) * 2 ** 20);
    await deploy(ID, "auto");
    const { replicas } = await model(ID);
    expect(replicas).toMatchObject([
      {
        phase: "ready",
        context_tokens: 4096,
        stages: [
          { first_block: 0, last_block: 1, phase: "ready" },
          { first_block: 2, last_block: 3, phase: "ready" },
          { node: replicas[0]?.node, first_block: 4, last_block: 5, phase: "ready" },
        ],
      },
    ]);
    expect(await answer(ID, 1)).toEqual(expected);
    expect(await adapted(ID)).toEqual(expectedAdapted);
    expect(expectedAdapted).not.toEqual(expected);
    const { vectors, ...answers } = await others(ID);
    expect(answers).toEqual({
      truths: ["boolean", "boolean"],
      scored: [true, true],
      begins: [true, true, true],
    });
    expect(largestDifference(vectors, expectedOthers.vectors)).toBeLessThan(NEAR);
    // The first report of a stage may come before it has waited.
    await eventually(async () =>
      (await stagesOf(ID)).every((stage) => (stage.idle_share ?? 0) > 0),
    );
    const stages = await stagesOf(ID);
    for (const { step_ms: stepMs, idle_share: idle } of stages) {
      expect(stepMs).toBeGreaterThan(0);
      expect(idle).toBeLessThan(1);
    }
    expect(stages.map(({ hop_ms: hopMs }) => (hopMs ?? 0) > 0)).toEqual([false, false, true]);
    const table = await heddle("models", "list", "-o", "wide");
    const times = String.raw`\d+ MiB step [\d.]+ ms idle \d+%`;
    expect(table).toMatch(
      new RegExp(String.raw`0-1 ${times}, 2-3 ${times}, 4-5 ${times} hop [\d.]+ ms`),
    );
  });

  it("answers the same whichever of its workers is killed in the middle of it", async () => {
    let seed = 10;
    let undisturbed = await longAnswer(seed);
    while (!undisturbed.isClearAtFirst) undisturbed = await longAnswer(++seed);
    let killed: number | undefined;
    await start(3);
    // The last one first: only the last two workers have the memory for its stage.
    for (const stage of [2, 0, 1]) {
      // The one that was killed before is a spare again.
      if (killed !== undefined) await start(killed);
      await ready(ID);
      const lost = await stageNodes();
      killed = indexOf(lost[stage]);
      const { text, completed, pauseMs } = await killedAmid(seed, processes[killed]!);
      expect(completed).toBe(LONG_TOKENS);
      expect(pauseMs).toBeLessThan(MAX_PAUSE_MS);
      expectSame(text, undisturbed);
      const now = await stageNodes();
      expect(lost).not.toContain(now[stage]);
      // The others keep their stages where the last one, which leads them, does.
      if (stage < 2) expect(now.with(stage, "")).toEqual(lost.with(stage, ""));
    }
  });

  it("moves the stage of a worker that is drained, with its cache", async () => {
    const [first = "", second, last] = await stageNodes();
    const before = await cluster.openai.completions.create(ask(ID, 3));
    await start(spareIndex(await stageNodes()));
    await cluster.request("POST", `/api/v1/workers/${first}/drain`, {});
    await eventually(async () => !(await stageNodes()).includes(first));
    expect((await stageNodes()).slice(1)).toEqual([second, last]);
    await ready(ID);
    const after = await cluster.openai.completions.create(ask(ID, 3));
    expect(after.choices[0]?.text).toBe(before.choices[0]?.text);
    const { cached_tokens: cached = 0 } = after.usage?.prompt_tokens_details ?? {};
    expect(cached).toBeGreaterThan(10);
  });

  it("says what is missing where it does not fit", async () => {
    const body = { id: "large", source, options: OPTIONS, placement: "sharded", max_stages: 2 };
    await cluster.request("POST", "/api/v1/models", body);
    await eventually(async () => (await model("large")).waiting_for.length > 0);
    const { status, waiting_for } = await model("large");
    expect(status).toBe("unplaced");
    expect(waiting_for).toEqual([
      expect.stringMatching(/does not fit into 2 stages: it needs 11 MiB/),
    ]);
    expect(waiting_for[0]).toMatch(/worker-4 has \d+/);
    // A call that waits for the model reads the same.
    const stream = await cluster.request("POST", "/api/v1/chat/completions", {
      model: "large",
      messages: [{ role: "user", content: "hi" }],
      stream: true,
    });
    const reader = stream.body!.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    while (!text.includes("does not fit into 2 stages")) text += (await reader.read()).value ?? "";
    await reader.cancel();
  });
});
