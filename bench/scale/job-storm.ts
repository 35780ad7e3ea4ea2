import { setTimeout as delay } from "node:timers/promises";
import { HttpConnection, postBytes } from "../support/http-connection.ts";
import { originOf } from "../support/origin.ts";
import { type Summary, summarizeSamples } from "../support/statistics.ts";
import { EventFollower } from "./event-follower.ts";
import { RUN_MS_VARIABLE } from "./settings.ts";
import { now } from "./simulated-task.ts";
import type { AttachedCluster } from "./steady.ts";

const PATH = "/api/v1/jobs";
const CONNECTIONS = 64;
const RUN_MS = 1_000;
/** After the last submission, for what is still queued. */
const TIMEOUT_MS = 300_000;

/** Jobs of a second each, submitted over HTTP to the leader. */
export interface JobStorm {
  readonly masters: number;
  readonly workers: number;
  readonly jobs: number;
  /** Submissions a second; 0 for as many as 64 callers can make. */
  readonly rate: number;
  readonly acceptedPerSecond: number;
  /** From the first submission to the last end that the event stream showed. */
  readonly finishedPerSecond: number;
  readonly refused: number;
  /** Accepted, but failed or not seen to end within five minutes of the last submission. */
  readonly unseen: number;
  /** From sending the submission to its answer, to the start on the worker, and to that event. */
  readonly acceptedMs: Summary;
  readonly startedMs: Summary;
  readonly runningMs: Summary;
  readonly eventLagMs: Summary;
  /** The processor time of the leader's process, for each job from its submission to its end. */
  readonly cpuMsPerJob: number;
  /** The same of all simulated workers' processes, which share the cores. */
  readonly workersCpuMsPerJob: number;
  /** The growth of the leader's memory, from before the storm to its end. */
  readonly grownKibPerJob: number;
}

/** Submits jobs at a rate, or as fast as possible, and waits for all of them. */
export async function measureJobStorm(
  { masters, fleet, workers }: AttachedCluster,
  jobs: number,
  rate: number,
): Promise<JobStorm> {
  const { group } = masters;
  const leader = await group.leader();
  const url = group.url(leader) ?? "";
  const leading = async () => (await masters.uses()).find(({ name }) => name === leader);
  const before = await leading();
  const follower = await EventFollower.open(url, group.adminKey);
  const idle = await fleet.report();
  const sent = await submitAll({ url, key: group.adminKey, jobs, rate, bodyOf: jobBody });
  const started = new Map<string, number>();
  const deadline = performance.now() + TIMEOUT_MS;
  while (follower.endedMs.size < sent.sentMs.size && performance.now() < deadline) {
    await delay(500);
    if (follower.fault) throw follower.fault;
    for (const { jobId, startedMs } of (await fleet.report()).tasks) started.set(jobId, startedMs);
  }
  const settled = await fleet.report();
  for (const { jobId, startedMs } of settled.tasks) started.set(jobId, startedMs);
  await follower.close();
  const after = await leading();
  const since = (at: ReadonlyMap<string, number>) =>
    [...sent.sentMs].flatMap(([id, ms]) => (at.has(id) ? (at.get(id) ?? 0) - ms : []));
  const firstMs = Math.min(...sent.sentMs.values());
  const lastEndMs = Math.max(...follower.endedMs.values());
  const ended = follower.endedMs.size;
  return {
    masters: group.runningNames.length,
    workers,
    jobs,
    rate,
    acceptedPerSecond: sent.sentMs.size / sent.seconds,
    finishedPerSecond: ended / ((lastEndMs - firstMs) / 1_000),
    refused: sent.refused,
    unseen: sent.sentMs.size - ended + follower.failed,
    acceptedMs: summarizeSamples(sent.answerMs),
    startedMs: summarizeSamples(since(started)),
    runningMs: summarizeSamples(since(follower.runningMs)),
    eventLagMs: summarizeSamples(follower.lagsMs),
    cpuMsPerJob: ((after?.cpuMs ?? 0) - (before?.cpuMs ?? 0)) / jobs,
    workersCpuMsPerJob: (settled.cpuMs - idle.cpuMs) / jobs,
    grownKibPerJob: ((after?.residentBytes ?? 0) - (before?.residentBytes ?? 0)) / 1024 / jobs,
  };
}

interface Submitted {
  /** Keyed by accepted job: when its submission was sent. */
  readonly sentMs: Map<string, number>;
  readonly answerMs: number[];
  refused: number;
  seconds: number;
}

export interface JobSubmissions {
  readonly url: string;
  readonly key: string;
  readonly jobs: number;
  /** Submissions a second; 0 for as many as 64 callers can make. */
  readonly rate: number;
  readonly bodyOf: (at: number) => object;
}

/** An open loop at the rate over many connections, or a closed loop of them. */
export async function submitAll(submission: JobSubmissions): Promise<Submitted> {
  const { url, key, jobs, rate, bodyOf } = submission;
  const result: Submitted = { sentMs: new Map(), answerMs: [], refused: 0, seconds: 0 };
  const origin = originOf(url);
  const headers = { authorization: `Bearer ${key}` };
  const startedMs = performance.now();
  let next = 0;
  const caller = async () => {
    const connection = new HttpConnection(origin);
    for (let at = next++; at < jobs; at = next++) {
      const dueMs = rate > 0 ? startedMs + (at * 1_000) / rate : 0;
      const waitMs = dueMs - performance.now();
      if (waitMs > 0) await delay(waitMs);
      const body = JSON.stringify(bodyOf(at));
      await submit(connection, postBytes({ origin, path: PATH, headers, body }), result);
    }
    connection.close();
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, caller));
  result.seconds = (performance.now() - startedMs) / 1_000;
  return result;
}

function submit(connection: HttpConnection, request: Buffer, result: Submitted): Promise<void> {
  return new Promise((resolve) => {
    const sentMs = now();
    let text = "";
    connection.send(request, {
      body: (bytes) => {
        text += bytes.toString();
      },
      end: (status) => {
        if (status === 202) {
          result.sentMs.set((JSON.parse(text) as { readonly job_id: string }).job_id, sentMs);
          result.answerMs.push(now() - sentMs);
        } else {
          result.refused += 1;
          if (result.refused === 1) console.log(`a submission was refused: ${status} ${text}`);
        }
        resolve();
      },
      fail: (error) => {
        result.refused += 1;
        console.log(`a submission failed: ${error.message}`);
        resolve();
      },
    });
  });
}

function jobBody(at: number) {
  return {
    name: `bench-${Date.now()}-${at}`,
    command: "true",
    resources: { cpu_cores: 1, memory_gb: 1 },
    environment_variables: { [RUN_MS_VARIABLE]: String(RUN_MS) },
  };
}
