import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { chmod, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { eventually } from "@heddle/base/testing/eventually";
import { startArguments } from "@heddle/base/testing/programs";
import OpenAI from "openai";

/** Other apps are run as processes, never imported. */
const MASTER = startArguments("master");
const PARAMETER_SERVER = startArguments("parameter-server");
const WORKER = startArguments("worker");
const JOB_TIMEOUT_MS = 120_000;

/** Any id of the tiny profile: one deployment serves all. */
export const TINY = "FamilyB-1-8B";
/** The tiny model's end tokens; banned, an answer runs to its limit. */
export const NO_END = { "0": -100, "1": -100, "2": -100, "3": -100 };

/** The token of a byte in the tiny model's vocabulary, where four control tokens come first. */
export const byteToken = (byte: number): string => String(4 + byte);

/** A bias under which the tiny model generates only bytes of the text. */
export function only(text: string): Record<string, number> {
  return Object.fromEntries([...Buffer.from(text)].map((byte) => [byteToken(byte), 100]));
}

interface Ready {
  readonly http: string;
  readonly grpc: string;
}

export interface ClusterOptions {
  readonly workers?: number;
  readonly masterFlags?: readonly string[];
  readonly workerFlags?: readonly string[];
  /** Without the built-in models. */
  readonly isBare?: boolean;
}

/** A master with workers on the built-in tiny model: real processes, data in one new directory. */
export class ProcessCluster {
  readonly data: string;
  /** The output of all processes. */
  output = "";
  master!: ChildProcess;
  url = "";
  adminKey = "";
  openai!: OpenAI;
  readonly workers: ChildProcess[] = [];
  readonly #options: ClusterOptions;
  readonly #children = new Set<ChildProcess>();
  grpc = "";

  get runningWorkers(): ChildProcess[] {
    return this.workers.filter(isRunning);
  }

  private constructor(data: string, options: ClusterOptions) {
    this.data = data;
    this.#options = options;
  }

  /** Resolves when every worker can answer. */
  static async start(options: ClusterOptions = {}): Promise<ProcessCluster> {
    const data = await mkdtemp(join(tmpdir(), "heddle-cluster-"));
    // Tasks of workers below it run as other users.
    await chmod(data, 0o755);
    const cluster = new ProcessCluster(data, options);
    await cluster.startMaster();
    for (let i = 0; i < (options.workers ?? 1); i++) await cluster.startWorker();
    if (!options.isBare) await cluster.replicasReady(options.workers ?? 1);
    return cluster;
  }

  /** Starts the master; a restart keeps its ports. */
  async startMaster(): Promise<void> {
    const ports = [
      ["--http-port", this.url ? new URL(this.url).port : "0"],
      ["--grpc-port", this.grpc ? new URL(`tcp://${this.grpc}`).port : "0"],
    ];
    const { child, ready } = await this.#spawn(MASTER, [
      "--data",
      join(this.data, "master"),
      ...(this.#options.isBare ? [] : ["--profile", "tiny"]),
      "--bootstrap-key-file",
      join(this.data, "key"),
      ...this.#tokenFlags(),
      ...ports.flat(),
      ...(this.#options.masterFlags ?? []),
    ]);
    this.master = child;
    this.url = ready.http;
    this.grpc = ready.grpc;
    this.adminKey = (await readFile(join(this.data, "key"), "utf8")).trim();
    this.openai = this.client(this.adminKey);
  }

  /** `name` selects the data directory: that of an earlier worker makes this its restart. */
  async startWorker(
    flags: readonly string[] = [],
    name = `worker-${this.workers.length + 1}`,
  ): Promise<ChildProcess> {
    const { child } = await this.#spawn(WORKER, [
      "--data",
      join(this.data, name),
      "--grpc-host",
      "127.0.0.1",
      "--grpc-port",
      "0",
      "--threads",
      "1",
      "--models-cache",
      join(this.data, "cache"),
      "--masters",
      this.grpc,
      ...this.#tokenFlags(),
      ...(this.#options.workerFlags ?? []),
      ...flags,
    ]);
    this.workers.push(child);
    return child;
  }

  /** Starts what a test has stopped, so that a failed one can be tried again. */
  async startMissing(workers: number): Promise<void> {
    if (!isRunning(this.master)) await this.startMaster();
    while (this.runningWorkers.length < workers) await this.startWorker();
    await this.replicasReady(workers);
  }

  /** `name` selects the data directory, as for a worker. */
  async startParameterServer(name: string, flags: readonly string[] = []): Promise<ChildProcess> {
    const { child } = await this.#spawn(PARAMETER_SERVER, [
      "--data",
      join(this.data, name),
      "--name",
      name,
      "--grpc-host",
      "127.0.0.1",
      "--grpc-port",
      "0",
      "--masters",
      this.grpc,
      ...this.#tokenFlags(),
      ...flags,
    ]);
    return child;
  }

  client(apiKey: string): OpenAI {
    return new OpenAI({ baseURL: `${this.url}/api/v1`, apiKey, maxRetries: 0 });
  }

  /** Creates a key over the API and returns its text. */
  async createKey(body: Record<string, unknown>): Promise<string> {
    const reply = await this.request("POST", "/api/v1/keys", { name: "test", ...body });
    if (!reply.ok) throw new Error(await reply.text());
    return ((await reply.json()) as { key: string }).key;
  }

  request(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
    return fetch(this.url + path, {
      method,
      headers: { authorization: `Bearer ${this.adminKey}`, "content-type": "application/json" },
      ...(body !== undefined && { body: typeof body === "string" ? body : JSON.stringify(body) }),
      ...(signal && { signal }),
    });
  }

  /** Submits a job and returns its id. Removes one of the same name from a failed try first. */
  async submit(body: Readonly<Record<string, unknown>>): Promise<string> {
    for (;;) {
      const reply = await this.request("POST", "/api/v1/jobs", body);
      const text = await reply.text();
      if (reply.status === 202) return (JSON.parse(text) as { job_id: string }).job_id;
      const left = /job (job_\w+) of the project \S+ has the name/.exec(text)?.[1];
      if (reply.status !== 409 || left === undefined) throw new Error(`${reply.status}: ${text}`);
      await this.request("DELETE", `/api/v1/jobs/${left}`);
      await delay(100);
    }
  }

  async replicasReady(count: number): Promise<void> {
    await this.until(async () => {
      const reply = await this.request("GET", `/api/v1/models/${TINY}`).catch(() => undefined);
      if (!reply?.ok) return false;
      const { replicas } = (await reply.json()) as { replicas: { phase: string }[] };
      return replicas.filter(({ phase }) => phase === "ready").length === count;
    }, `${count} replicas are ready`);
  }

  /** A metric of /metrics, summed over its label sets, or over those of the model. */
  async metric(name: string, model = ""): Promise<number> {
    const text = await (await fetch(`${this.url}/metrics`)).text();
    let sum = 0;
    for (const line of text.split("\n")) {
      const isNamed = line.startsWith(`${name}{`) || line.startsWith(`${name} `);
      if (isNamed && line.includes(model)) {
        sum += Number(line.slice(line.lastIndexOf(" ") + 1));
      }
    }
    return sum;
  }

  /** `eventually` that shows the output of the processes. */
  until(condition: () => Promise<boolean>, what: string, timeoutMs?: number): Promise<void> {
    return eventually(condition, () => `${what}\n${this.output.slice(-3000)}`, timeoutMs);
  }

  /** Waits until the job meets the condition; rejects with the logs and the failure of one that fails. */
  async untilJob<Job extends { readonly state: string; readonly failure: unknown }>(
    id: string,
    what: string,
    holds: (job: Job) => boolean,
  ): Promise<Job> {
    let job: Job | undefined;
    const poll = async () => {
      const reply = await this.request("GET", `/api/v1/jobs/${id}`);
      const latest = (await reply.json()) as Job;
      job = latest;
      if (latest.state !== "failed") return holds(latest);
      throw new Error(`${await this.logsOf(id)}${JSON.stringify(latest.failure)}`);
    };
    await this.until(poll, what, JOB_TIMEOUT_MS);
    return job as Job;
  }

  /** The logs of all attempts of the job. */
  async logsOf(id: string): Promise<string> {
    return (await this.request("GET", `/api/v1/jobs/${id}/logs?attempt=all`)).text();
  }

  /** The rows of the usage ledger that are on the disk. */
  usageRows(): UsageLine[] {
    const folder = join(this.data, "master", "usage");
    return readdirSync(folder)
      .flatMap((file) => readFileSync(join(folder, file), "utf8").split("\n"))
      .filter((line) => line !== "")
      .map((line) => JSON.parse(line) as UsageLine);
  }

  /** Stops one process, unless it has ended, and returns its exit code or signal. */
  async stop(child: ChildProcess, signal: NodeJS.Signals = "SIGTERM"): Promise<number | string> {
    if (isRunning(child)) {
      const exited = once(child, "exit");
      child.kill(signal);
      await exited;
    }
    return child.exitCode ?? child.signalCode ?? "";
  }

  async close(): Promise<void> {
    for (const child of [...this.#children].reverse()) await this.stop(child);
    await rm(this.data, { recursive: true });
  }

  #tokenFlags(): string[] {
    return ["--cluster-token-file", join(this.data, "token")];
  }

  /** Resolves with the fields of the `ready` line. */
  async #spawn(
    main: readonly string[],
    flags: string[],
  ): Promise<{ child: ChildProcess; ready: Ready }> {
    const child = spawn(process.execPath, [...main, ...flags]);
    this.#children.add(child);
    child.once("exit", () => this.#children.delete(child));
    let own = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text: string) => {
        own += text;
        this.output += text;
      });
    }
    const find = () => /^.*"msg":"ready".*$/m.exec(own)?.[0];
    await eventually(() => find() !== undefined || child.exitCode !== null, undefined, 120_000);
    const line = find();
    if (line === undefined) throw new Error(`${main.at(-1)} did not start: ${own}`);
    return { child, ready: JSON.parse(line) as Ready };
  }
}

function isRunning(child: ChildProcess): boolean {
  return child.exitCode === null && child.signalCode === null;
}

/** The parts of a usage row that these tests read. */
export interface UsageLine {
  readonly requestId: string;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly errorCode?: string;
}

/** The child processes of a process that are not yet reaped. */
export function childrenOf(pid: number | undefined): number[] {
  const text = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8");
  return text.split(" ").filter(Boolean).map(Number);
}

/** The descendants of a process, nearest first: a task's shell and launcher before its program. */
export function descendantsOf(pid: number | undefined): number[] {
  const children = childrenOf(pid);
  return [...children, ...children.flatMap(descendantsOf)];
}
