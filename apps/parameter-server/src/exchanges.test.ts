// holds: ps-node-group, train-weave

import { randomUUID } from "node:crypto";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { MessageChannel, type Worker } from "node:worker_threads";
import { ThreadCalls } from "@heddle/base/async/thread-calls";
import { AppError } from "@heddle/base/errors";
import { answerExchanges } from "@heddle/parameters/node-group/answer-exchanges";
import type { ExchangeApi, ExchangeStart } from "@heddle/parameters/node-group/exchange-api";
import type { NodeGroup } from "@heddle/parameters/node-group/node-group";
import { ThreadedExchange } from "@heddle/parameters/node-group/threaded-exchange";
import { openShards } from "@heddle/parameters/shards/shard-set";
import {
  credentials,
  startServer,
  stopServers,
  ticketOf,
} from "@heddle/parameters/testing/server-processes";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { jobOn, tensors } from "./testing/training-job.ts";

const FRAGMENTS = 2;
const terms = { weight: 1, learningRate: 1 };
const zeros = () => tensors(() => 0);
/** The group of a task that is alone on its node, for each fragment. */
const ALONE = Array.from({ length: FRAGMENTS }, () => ({ member: 0, members: 1, socketPath: "" }));

let server = "";
const closing: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  server = (await startServer()).address;
});
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});
afterAll(stopServers);

/** A job of two fragments, each a half of all elements: the second ends with the bias and the gain. */
async function openJob(workers: number) {
  const servers = Array.from({ length: FRAGMENTS }, () => server);
  const { spec, signal } = jobOn(servers, { workers, fragments: FRAGMENTS });
  await openShards({ spec, credentials, signal });
  return { spec, signal, credentials: { ticket: ticketOf(spec, servers) }, host: "127.0.0.1" };
}

type Job = Awaited<ReturnType<typeof openJob>>;

/** In a thread of its own. */
async function joined(job: Job, rank: number, more = {}): Promise<ThreadedExchange> {
  const exchange = await ThreadedExchange.start({ ...job, rank, ...more }, ALONE);
  closing.push(() => exchange.close());
  return exchange;
}

/** The thread's side in this thread, over ports like a worker's. */
function answered({ spec, credentials: ticket, host }: Job, rank: number, groups = ALONE) {
  const { port1, port2 } = new MessageChannel();
  const [shared, part] = [zeros(), zeros()];
  const rest = {
    incarnation: undefined,
    topkFraction: undefined,
    paths: undefined,
    socketDirectory: undefined,
    timeoutMs: undefined,
  };
  const start: ExchangeStart = {
    spec,
    credentials: ticket,
    rank,
    host,
    groups,
    shared,
    part,
    ...rest,
  };
  answerExchanges(port2, start);
  const calls = new ThreadCalls<ExchangeApi>(port1 as unknown as Worker, "the exchanges");
  closing.push(async () => {
    await calls.call("close", undefined);
    port1.close();
  });
  return { calls, shared, part };
}

const filled = (exchange: Pick<ThreadedExchange, "part">, value: number) => {
  for (const data of Object.values(exchange.part)) data.fill(value);
};
/** The first element of the first fragment, and the last of the second. */
const ends = ({ shared }: Pick<ThreadedExchange, "shared">) => [
  shared["weight"]?.[0],
  shared["gain"]?.[300],
];

test("threaded exchange: sends a fragment alone, and the update is the workers' mean", async () => {
  const job = await openJob(2);
  const both = await Promise.all([0, 1].map((rank) => joined(job, rank)));
  const [first, second] = both as [ThreadedExchange, ThreadedExchange];
  expect(both.map(({ clocks }) => clocks)).toEqual([
    [0, 0],
    [0, 0],
  ]);
  expect(first.traffic).toBeUndefined();
  await first.initialize(tensors(() => 5));
  await second.pullAll();
  expect(ends(second)).toEqual([5, 5]);
  filled(first, 1);
  filled(second, 3);
  for (const each of both) each.begin(1, 1, terms);
  expect(() => first.begin(1, 2, terms)).toThrow("fragment 1 is under way");
  await second.settle();
  expect(ends(second)).toEqual([5, 3]);
  await Promise.all(both.map((each) => each.finish(1)));
  expect(both.map(ends)).toEqual([
    [5, 3],
    [5, 3],
  ]);
  // Where none is under way there is nothing to wait for.
  await first.finish(0);
  // It has pushed a half, and pulled the whole model and a half; each tensor fills blocks of 256.
  const whole = 4 * (37 * 531 + 7 + 301);
  const { bytesPushed = 0, bytesPulled = 0, retries, paths } = second.traffic ?? {};
  expect(Math.abs(bytesPushed - whole / 2)).toBeLessThan(4 * 768);
  expect(Math.abs(bytesPulled - 1.5 * whole)).toBeLessThan(4 * 1536);
  expect({ retries, paths: paths?.length }).toEqual({ retries: 0, paths: FRAGMENTS });
});

test("threaded exchange: rounds that the shards contain are not sent again", async () => {
  const exchange = await joined(await openJob(1), 0);
  await exchange.initialize(zeros());
  exchange.beginAt([2, 0]);
  filled(exchange, 1);
  for (const fragment of [0, 1]) exchange.begin(fragment, 2, terms);
  for (const fragment of [0, 1]) await exchange.finish(fragment);
  await exchange.pullAll();
  expect(ends(exchange)).toEqual([0, -1]);
  for (const fragment of [0, 1]) exchange.begin(fragment, 3, terms);
  for (const fragment of [0, 1]) await exchange.finish(fragment);
  expect(ends(exchange)).toEqual([-1, -2]);
});

test("threaded exchange: the whole model at once, and a task that joins again", async () => {
  const job = await openJob(1);
  const exchange = await joined(job, 0);
  await exchange.initialize(zeros());
  const own = tensors(() => 9);
  await exchange.push(
    tensors((at) => at % 7),
    terms,
  );
  expect(await exchange.pull(own)).toBe(1);
  expect(own).toEqual(tensors((at) => 0 - (at % 7)));
  own.bias.fill(9);
  await exchange.pullAlone(own);
  expect(own).toEqual(tensors((at) => 0 - (at % 7)));
  await exchange.close();
  const next = await joined(job, 0);
  expect(next.clocks).toEqual([1, 1]);
  await next.dismiss();
  expect(next.traffic).toMatchObject({ bytesPushed: 0, bytesPulled: 0 });
});

test("threaded exchange: `finish` reports what ended an exchange", async () => {
  const stop = new AbortController();
  const exchange = await joined(await openJob(2), 0, { signal: stop.signal });
  await exchange.initialize(zeros());
  // Its pull waits for the other worker.
  exchange.begin(0, 1, terms);
  stop.abort(new AppError("cancelled", "the task ends"));
  await expect(exchange.finish(0)).rejects.toMatchObject({ code: "cancelled" });
  await exchange.close();
  await exchange.close();
  await expect(exchange.pullAll()).rejects.toThrow();
});

test("threaded exchange: its sockets lie in the task's directory", async () => {
  const socketDirectory = mkdtempSync(join(tmpdir(), "heddle-x-"));
  closing.push(async () => rmSync(socketDirectory, { recursive: true }));
  await joined(await openJob(1), 0, { socketDirectory });
  expect(readdirSync(socketDirectory)).toHaveLength(FRAGMENTS);
});

test("threaded exchange: wrong groups and credentials, and closed shards, are refused", async () => {
  const job = await openJob(1);
  const start = (more: object, groups: readonly NodeGroup[] = ALONE) =>
    ThreadedExchange.start({ ...job, rank: 0, ...more }, groups);
  await expect(start({}, ALONE.slice(1))).rejects.toThrow("1 groups of fragments");
  const tls = { material: {} };
  await expect(start({ credentials: { clusterToken: "t", tls } })).rejects.toThrow(/job's ticket/);
  const spec = { ...job.spec, jobId: `job-${randomUUID()}` };
  const ofIt = { ticket: ticketOf(spec, spec.servers) };
  await expect(start({ spec, credentials: ofIt, timeoutMs: 100 })).rejects.toMatchObject({
    code: "shard_unavailable",
  });
});

test("exchanges: the traffic is that of all fragments, and its closing gives the last", async () => {
  const { calls, shared, part } = answered(await openJob(1), 0);
  expect(await calls.call("join", undefined)).toEqual([0, 0]);
  shared.gain.fill(4);
  const sent = await calls.call("initialize", undefined);
  expect(sent).toMatchObject({ bytesPushed: 0, bytesPulled: 0, retries: 0 });
  expect(sent?.paths).toHaveLength(FRAGMENTS);
  for (const data of Object.values(part)) data.fill(1);
  const pushed = await calls.call("pushAll", terms);
  const bytes = pushed?.bytesPushed ?? 0;
  expect(bytes).toBeGreaterThan(4 * (37 * 531 + 7 + 301));
  const pulled = await calls.call("pullAll", { alone: false });
  expect(pulled).toMatchObject({ version: 1, traffic: { bytesPushed: bytes, bytesPulled: bytes } });
  expect(ends({ shared })).toEqual([-1, 3]);
  const exchanged = await calls.call("exchange", { fragment: 1, terms });
  expect(ends({ shared })).toEqual([-1, 2]);
  // The first fragment lags behind.
  expect(await calls.call("pullAll", { alone: true })).toMatchObject({ version: 1 });
  expect(exchanged?.bytesPushed).toBeGreaterThan(bytes);
  const last = await calls.call("close", undefined);
  expect(last?.bytesPulled).toBeGreaterThan(exchanged?.bytesPulled ?? 0);
});

test("exchanges: an abort of one call ends the waits of all", async () => {
  const { calls } = answered(await openJob(2), 0);
  await calls.call("join", undefined);
  await calls.call("initialize", undefined);
  const stop = new AbortController();
  const waits = [0, 1].map((fragment) =>
    calls.call("exchange", { fragment, terms }, fragment === 0 ? stop.signal : undefined),
  );
  stop.abort();
  for (const { reason } of (await Promise.allSettled(waits)) as PromiseRejectedResult[]) {
    expect(reason).toMatchObject({ code: "cancelled" });
  }
});

test("exchanges: tasks of a node share its traffic, and learn that the job has ended", async () => {
  const job = await openJob(1);
  const directory = mkdtempSync(join(tmpdir(), "heddle-x-"));
  closing.push(async () => rmSync(directory, { recursive: true }));
  const groups = (member: number) =>
    ALONE.map((_, i) => ({ member, members: 2, socketPath: join(directory, `${i}`) }));
  const [leader, other] = [0, 1].map((member) => answered(job, 0, groups(member)));
  const clocks = await Promise.all(
    [leader, other].map((task) => task?.calls.call("join", undefined)),
  );
  expect(clocks).toEqual([
    [0, 0],
    [undefined, undefined],
  ]);
  expect(await other?.calls.call("initialize", undefined)).toBeUndefined();
  await leader?.calls.call("initialize", undefined);
  // The servers answer the leader although the other task has sent nothing.
  expect(await leader?.calls.call("pullAll", { alone: true })).toMatchObject({ version: 0 });
  const asked = expect(other?.calls.call("pullAll", { alone: true })).rejects.toMatchObject({
    code: "gone",
  });
  await leader?.calls.call("dismiss", undefined);
  await asked;
});
