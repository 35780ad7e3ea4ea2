import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { programOf } from "@heddle/base/testing/programs";
import { until } from "@heddle/base/testing/until";
import type { TrainerOrders } from "@heddle/contracts/trainer/orders";
import { readGguf } from "@heddle/engines/gguf/gguf-reader";
import {
  connectParameters,
  type ParameterServerClient,
} from "@heddle/parameters/parameter-server-client";
import { type ShardSetAccess, shardStatuses } from "@heddle/parameters/shards/shard-set";
import type { ShardSetSpec } from "@heddle/parameters/shards/shard-spec";
import {
  credentials,
  hasEnded,
  killed,
  type ServerProcess,
  startServer,
  ticketOf,
} from "@heddle/parameters/testing/server-processes";
import { TEXT } from "@heddle/training/testing/tiny-language-model";

const trainerProgram = programOf("trainer");

/** The longest wait in a training test on a busy machine. */
const WAIT_MS = 200_000;

/** A line of progress or of metrics. */
export interface TrainingLine {
  readonly round?: number;
  readonly step?: number;
  readonly loss?: number;
  readonly checkpoint?: string;
  readonly [field: string]: unknown;
}

/** Parameter servers and trainers of tests, each a real process; without any master. */
export class TrainingCluster {
  readonly folder = mkdtempSync(join(tmpdir(), "heddle-training-"));
  readonly #servers: ServerProcess[] = [];
  readonly #trainers = new Set<ChildProcess>();
  readonly #clients: ParameterServerClient[] = [];

  /** Writes the text that `TINY_MODEL` learns from, and returns its path. */
  writeText(): string {
    const path = join(this.folder, "text.txt");
    writeFileSync(path, TEXT);
    return path;
  }

  /** Starts a parameter server; its data is kept under the name. */
  async startServer(name: string, port = 0): Promise<ServerProcess> {
    const dataDirectory = join(this.folder, name);
    mkdirSync(dataDirectory, { recursive: true });
    const server = await startServer(dataDirectory, port);
    this.#servers.push(server);
    return server;
  }

  /** A job whose tasks can be started, and started again as another attempt. */
  job(
    algorithm: string,
    config: unknown,
    servers: readonly ServerProcess[],
    options: Partial<TrainerOrders> = {},
  ): TrainingJob {
    return new TrainingJob(this, {
      jobToken: randomBytes(32).toString("hex"),
      ticket: "",
      jobId: `job_${randomUUID()}`,
      jobName: "test",
      algorithm,
      config,
      attempt: 1,
      rank: 0,
      tasks: 1,
      nodes: [],
      resumeFrom: "",
      keepCheckpoints: 3,
      host: "127.0.0.1",
      threads: 1,
      hasGpu: false,
      release: "0.0.0",
      checkpointDirectory: "",
      artifactDirectory: "",
      progressFile: "",
      socketDirectory: "",
      parameterServers: servers.map(({ address }) => address),
      readyServers: servers.map(({ address }) => address),
      lostServers: [],
      ...options,
    });
  }

  /** A process of the trainer with these orders. */
  start(orders: TrainerOrders): RunningTrainer {
    const child = spawn(process.execPath, [trainerProgram], { stdio: "pipe" });
    this.#trainers.add(child);
    // A process that is killed at once closes its end first.
    child.stdin.on("error", () => undefined);
    child.stdin.end(
      JSON.stringify({ ...orders, ticket: ticketOf(orders, orders.parameterServers) }),
    );
    return new RunningTrainer(orders, child);
  }

  /** Closed with the cluster. */
  keep(client: ParameterServerClient): void {
    this.#clients.push(client);
  }

  /** Ends all trainers of a test; servers stay. */
  async endTrainers(): Promise<void> {
    for (const client of this.#clients.splice(0)) await client.close();
    for (const child of this.#trainers) await killed(child);
    this.#trainers.clear();
  }

  async close(): Promise<void> {
    await this.endTrainers();
    for (const server of this.#servers) await server.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** The tasks of one job, attempt by attempt. */
export class TrainingJob {
  readonly #cluster: TrainingCluster;
  readonly #orders: TrainerOrders;

  constructor(cluster: TrainingCluster, orders: TrainerOrders) {
    this.#cluster = cluster;
    this.#orders = orders;
  }

  get id(): string {
    return this.#orders.jobId;
  }

  /** Starts one task; `changes` say which, and of which attempt. */
  start(changes: Partial<TrainerOrders> = {}): RunningTrainer {
    const orders = { ...this.#orders, ...changes };
    const root = join(this.#cluster.folder, orders.jobId);
    const task = join(root, `${orders.attempt}.${orders.rank}`);
    // Short, as the path of a socket must be.
    const sockets = `s-${orders.jobId.slice(-8)}-${orders.attempt}`;
    const socketDirectory = join(this.#cluster.folder, sockets);
    for (const folder of [task, socketDirectory]) mkdirSync(folder, { recursive: true });
    return this.#cluster.start({
      ...orders,
      checkpointDirectory: join(root, "checkpoints"),
      artifactDirectory: join(task, "artifacts"),
      progressFile: join(task, "progress.jsonl"),
      socketDirectory,
    });
  }

  /** The job's shards for a client of a test, which gives the tensors' shapes. */
  access(options: Partial<ShardSetSpec> = {}): ShardSetAccess {
    const { jobId, jobToken, attempt, parameterServers: servers, tasks } = this.#orders;
    const own = { jobId, attempt, ...options };
    const spec: ShardSetSpec = {
      servers,
      workers: tasks,
      learningRate: 1,
      compression: "none",
      parameters: [],
      optimizer: { kind: "sgd", momentum: 0, nesterov: false },
      consistency: { kind: "bsp" },
      jobToken: Buffer.from(jobToken, "hex"),
      ...own,
    };
    return { spec, credentials, signal: AbortSignal.timeout(WAIT_MS) };
  }

  /** Joins the job in this process, when its shards are open. */
  async join(rank: number, options: Partial<ShardSetSpec> = {}): Promise<ParameterServerClient> {
    const access = this.access(options);
    const areOpen = async () => {
      const statuses = await shardStatuses(access).catch(() => []);
      return statuses.some(({ ready }) => ready);
    };
    await until("the shards are open", areOpen, WAIT_MS);
    const client = await connectParameters({ ...access, rank, host: "127.0.0.1" });
    this.#cluster.keep(client);
    return client;
  }

  /** Starts all tasks. */
  startAll(changes: Partial<TrainerOrders> = {}): RunningTrainer[] {
    const tasks = changes.tasks ?? this.#orders.tasks;
    return Array.from({ length: tasks }, (_, rank) => this.start({ ...changes, rank }));
  }
}

/** One task's process. */
export class RunningTrainer {
  readonly orders: TrainerOrders;
  readonly child: ChildProcess;
  /** Its output on both streams. */
  output = "";
  readonly #ended: Promise<unknown>;

  constructor(orders: TrainerOrders, child: ChildProcess) {
    this.orders = orders;
    this.child = child;
    this.#ended = once(child, "close");
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on("data", (text) => {
        this.output += text;
      });
    }
  }

  /** Resolves with its exit code, or the signal that ended it. */
  async ended(): Promise<number | string> {
    await this.#ended;
    return this.child.signalCode ?? this.child.exitCode ?? -1;
  }

  /** Resolves when it has succeeded; rejects with its output. */
  async succeeded(): Promise<void> {
    const end = await this.ended();
    if (end !== 0) throw new Error(`a trainer ended with ${end}: ${this.output}`);
  }

  /** kill -9 */
  kill(): Promise<void> {
    return killed(this.child);
  }

  progress(): TrainingLine[] {
    return linesOf(this.orders.progressFile);
  }

  /** Each round, of rank 0. */
  metrics(): TrainingLine[] {
    return linesOf(this.artifact("metrics.jsonl"));
  }

  artifact(name: string): string {
    return join(this.orders.artifactDirectory, name);
  }

  /** Resolves after `round` rounds. */
  async reachesRound(round: number): Promise<void> {
    await this.#until(`round ${round}`, () => (this.metrics().at(-1)?.round ?? 0) >= round);
  }

  /** Requests a checkpoint and resolves with its name. */
  async checkpoint(): Promise<string> {
    const before = this.#checkpoints().length;
    this.child.kill("SIGUSR1");
    await this.#until("a checkpoint", () => this.#checkpoints().length > before);
    return this.#checkpoints().at(-1) ?? "";
  }

  #checkpoints(): string[] {
    return this.progress().flatMap(({ checkpoint }) => checkpoint ?? []);
  }

  async #until(what: string, isSo: () => boolean): Promise<void> {
    await until(`a trainer has ${what}`, () => isSo() || hasEnded(this.child), WAIT_MS);
    if (!isSo()) throw new Error(`a trainer ended before ${what}: ${this.output}`);
  }
}

/** The complete lines. */
function linesOf(path: string): TrainingLine[] {
  if (!existsSync(path)) return [];
  return readFileSync(path, "utf8")
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line) as TrainingLine);
}

/** The weights of a GGUF file in float32, tensor by tensor. */
export async function weightsOf(path: string): Promise<Map<string, Float32Array>> {
  const { tensors } = await readGguf(path);
  const bytes = readFileSync(path);
  return new Map(
    tensors.map(({ name, shape, offset }) => {
      const count = shape.reduce((product, size) => product * size, 1);
      return [
        name,
        new Float32Array(Uint8Array.from(bytes.subarray(offset, offset + count * 4)).buffer),
      ];
    }),
  );
}

/** The greatest difference between two sets of weights. */
export function distance(
  left: ReadonlyMap<string, Float32Array>,
  right: ReadonlyMap<string, Float32Array>,
): number {
  if ([...left.keys()].join() !== [...right.keys()].join()) return Number.POSITIVE_INFINITY;
  const differences = [...left].flatMap(([name, values]) =>
    [...values].map((value, i) => Math.abs(value - (right.get(name)?.[i] ?? Number.NaN))),
  );
  return differences.reduce((most, each) => Math.max(most, each), 0);
}
