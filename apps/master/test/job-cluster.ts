import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { eventually } from "@heddle/base/testing/eventually";
import { held } from "@heddle/base/testing/held";
import { SCRIPTED_WORKER } from "@heddle/base/testing/programs";
import { readServerSentEvents, SILENCE_MS } from "@heddle/client/server-sent-events";
import type { TestContext } from "vitest";
import { MasterGroup, REAL_MASTER } from "./master-group.ts";

/** The parts of GET /api/v1/jobs/ID that these tests read. */
export interface JobReply {
  readonly state: string;
  readonly attempt: number;
  readonly failure: { readonly reason: string; readonly message: string } | null;
  readonly failures: number;
  readonly losses: number;
  readonly task_list: readonly {
    readonly node_name: string;
    readonly devices: readonly number[];
  }[];
  readonly explanation: { readonly blockers: readonly { readonly reason: string }[] } | null;
  readonly progress: { readonly step: number | null } | null;
}

/** The parts of GET /api/v1/workers that these tests read. */
export interface WorkerAnswer {
  readonly id: string;
  readonly name: string;
  readonly gpus: readonly { readonly fault: string | null }[];
  readonly jobs: {
    readonly state: string;
    readonly quarantined: readonly { readonly device: number; readonly why: string }[];
    readonly tasks: readonly { readonly job_id: string }[];
  } | null;
}

interface Followed {
  readonly lines: readonly string[];
  /** The number of lines before each cursor. */
  readonly cursors: readonly { readonly after: number; readonly cursor: string }[];
  readonly ended: Promise<void>;
}

/** Masters and workers as processes, with shortened timeouts; `close` ends all. */
export class JobCluster {
  readonly masters: MasterGroup;
  readonly #workers = new Map<string, ChildProcess>();
  /** The output of each worker. */
  readonly output = new Map<string, string>();

  /** `env` is asked at each start of a master. */
  constructor(
    masters: number,
    times: { readonly leaseMs: number; readonly nodeLostMs: number },
    env: () => NodeJS.ProcessEnv = () => ({}),
  ) {
    const flags = ["--lease-ms", String(times.leaseMs), "--node-lost-ms", String(times.nodeLostMs)];
    this.masters = new MasterGroup(masters, flags, () => ({ env: env() }), REAL_MASTER);
  }

  /** The given settings apply in addition to the common ones. */
  async startWorker(name: string, settings: Readonly<Record<string, unknown>> = {}): Promise<void> {
    const argument = JSON.stringify({
      dataDirectory: join(this.masters.folder, name),
      checkpointDirectory: join(this.masters.folder, "checkpoints"),
      masters: this.masters.grpcAddresses,
      clusterToken: readFileSync(join(this.masters.folder, "token"), "utf8").trim(),
      name,
      ...settings,
    });
    const child = spawn(process.execPath, [...SCRIPTED_WORKER, argument], {
      stdio: ["ignore", "pipe", "pipe"],
      detached: true,
    });
    this.#workers.set(name, child);
    const ready = Promise.withResolvers<void>();
    child.stderr.on("data", (text: Buffer) => process.stderr.write(text));
    for (const input of [child.stdout, child.stderr]) {
      createInterface({ input }).on("line", (line) => {
        this.output.set(name, `${this.output.get(name) ?? ""}${line}\n`);
        if (line.includes('"ready"')) ready.resolve();
      });
    }
    await ready.promise;
  }

  /**
   * An `afterEach` of tests that share the cluster: it removes what a failed test left. So that
   * test can be retried, and no other fails. Does nothing after a passed one.
   */
  async clear({ task }: Pick<TestContext, "task">): Promise<void> {
    if (task.result?.state === "pass") return;
    for (const child of this.#workers.values()) child.kill("SIGCONT");
    this.masters.continueAll();
    await this.masters.startMissing();
    const live = "accepted,pending,scheduled,starting,running,checkpointing,preempted,retrying";
    const states = `${live},recovering,suspended,cancelling`;
    const { data } = await this.call<{ data: { id: string }[] }>(
      "GET",
      `/jobs?limit=1000&consistency=strong&state=${states}`,
    );
    for (const { id } of data) await this.call("DELETE", `/jobs/${id}`);
    for (const { id } of data) await this.reaches(id, "cancelled");
    for (const name of this.#workers.keys()) await this.#restore(name);
  }

  /** Makes the worker take jobs again, with all its devices. */
  async #restore(name: string): Promise<void> {
    rmSync(join(this.dataDirectory(name), "gpu-faults"), { force: true });
    await eventually(async () => {
      const { id, jobs } = await this.worker(name);
      if (jobs?.state === "ready" && jobs.quarantined.length === 0) return true;
      await this.call("POST", `/workers/${id}/resume`);
      return false;
    }, `${name} takes jobs again`);
  }

  signal(name: string, signal: NodeJS.Signals): void {
    this.#workers.get(name)?.kill(signal);
  }

  /** Resolves when the worker has exited. */
  async end(name: string, signal: NodeJS.Signals): Promise<void> {
    const child = this.#workers.get(name);
    if (!child) return;
    this.#workers.delete(name);
    const exited = once(child, "exit");
    child.kill("SIGCONT");
    child.kill(signal);
    await exited;
  }

  /** The data directory of a worker. */
  dataDirectory(name: string): string {
    return join(this.masters.folder, name);
  }

  /** A call to any master, and the JSON of its answer; throws if it is refused. */
  async call<T>(
    method: "GET" | "POST" | "PUT" | "DELETE",
    path: string,
    body?: unknown,
  ): Promise<T> {
    const reply = await this.masters.change(this.#any(), method, `/api/v1${path}`, body);
    const text = await reply.text();
    if (!reply.ok) throw new Error(`${method} ${path}: ${reply.status}: ${text}`);
    return JSON.parse(text) as T;
  }

  /** The masters' view of a worker, by its name. */
  async worker(name: string): Promise<WorkerAnswer> {
    const { data } = await this.call<{ data: WorkerAnswer[] }>("GET", "/workers");
    const worker = data.find((each) => each.name === name);
    if (!worker) throw new Error(`there is no worker ${name}`);
    return worker;
  }

  /** Waits until the worker takes jobs. */
  async takesJobs(name: string): Promise<void> {
    await eventually(async () => {
      const worker = await this.worker(name).catch(() => undefined);
      return worker?.jobs?.state === "ready";
    }, `${name} takes jobs`);
  }

  /** Submits a job and returns its id. */
  async submit(body: Readonly<Record<string, unknown>>, master = this.#any()): Promise<string> {
    const reply = await this.masters.change(master, "POST", "/api/v1/jobs", body);
    if (reply.status !== 202) throw new Error(`${reply.status}: ${await reply.text()}`);
    return ((await reply.json()) as { job_id: string }).job_id;
  }

  async job(id: string, master = this.#any()): Promise<JobReply> {
    const reply = await this.masters.request(master, "GET", `/api/v1/jobs/${id}`);
    if (!reply.ok) throw new Error(`${reply.status}: ${await reply.text()}`);
    return (await reply.json()) as JobReply;
  }

  /** Waits until the job is in that state, and returns it. */
  async reaches(id: string, state: string): Promise<JobReply> {
    let job: JobReply | undefined;
    let refusal: unknown;
    const reported = () => `the job is ${state}, and not ${job ? JSON.stringify(job) : refusal}`;
    await eventually(async () => {
      job = await this.job(id).catch((error: unknown) => {
        refusal = error;
        return undefined;
      });
      return job?.state === state;
    }, reported);
    return job as JobReply;
  }

  /** The logs as plain text. */
  async logs(id: string, query = "", master = this.#any()): Promise<string> {
    const reply = await this.masters.request(master, "GET", `/api/v1/jobs/${id}/logs?${query}`);
    const text = await reply.text();
    if (!reply.ok) throw new Error(`${reply.status}: ${text}`);
    return text;
  }

  /** Waits for the first lines of a job, and returns them. */
  async someLog(id: string): Promise<string> {
    let text = "";
    await eventually(async () => {
      text = await this.logs(id);
      return text !== "";
    }, "the job has written");
    return text;
  }

  /** Follows the job's standard output to its end, resuming at the cursor when a stream breaks. */
  follow(id: string, master: string): Followed {
    const lines: string[] = [];
    const cursors: { after: number; cursor: string }[] = [];
    const read = async () => {
      for (let ended = false; !ended; ) {
        const cursor = cursors.at(-1)?.cursor;
        const query = `follow=true&stream=stdout${cursor ? `&cursor=${cursor}` : ""}`;
        ended = await this.#events(master, `/api/v1/jobs/${id}/logs?${query}`, (event) => {
          if (event.text !== undefined) lines.push(event.text);
          if (event.cursor) cursors.push({ after: lines.length, cursor: event.cursor });
        });
      }
    };
    return { lines, cursors, ended: held(read()) };
  }

  /** Passes on each step of the job's update stream until the signal. */
  async progress(
    id: string,
    master: string,
    signal: AbortSignal,
    onStep: (step: number) => void,
  ): Promise<void> {
    const path = `/api/v1/jobs/${id}/events`;
    const onEvent = (event: { step?: number | null }) => {
      if (typeof event.step === "number") onStep(event.step);
    };
    await this.#events(master, path, onEvent, signal).catch((error: unknown) => {
      if (!signal.aborted) throw error;
    });
  }

  /** Whether the stream ended normally. */
  async #events(
    master: string,
    path: string,
    onEvent: (event: { text?: string; cursor?: string; step?: number | null }) => void,
    signal: AbortSignal | null = null,
  ): Promise<boolean> {
    const reply = await fetch(this.masters.url(master) + path, {
      signal,
      headers: { authorization: `Bearer ${this.masters.adminKey}`, accept: "text/event-stream" },
    });
    for await (const { type, data } of readServerSentEvents(reply.body!, SILENCE_MS)) {
      if (type === "end") return true;
      if (data !== "") onEvent(JSON.parse(data));
    }
    return false;
  }

  async close(): Promise<void> {
    for (const name of [...this.#workers.keys()]) await this.end(name, "SIGTERM");
    await this.masters.close();
  }

  #any(): string {
    const name = this.masters.runningNames[0];
    if (name === undefined) throw new Error("no master runs");
    return name;
  }
}
