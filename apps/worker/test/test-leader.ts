import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { ClientDuplexStream, ServerDuplexStream } from "@grpc/grpc-js";
import { SCRIPTED_WORKER } from "@heddle/base/testing/programs";
import { until } from "@heddle/base/testing/until";
import type { AttachReply } from "@heddle/contracts/generated/heddle/v1/AttachReply";
import type { LogAck } from "@heddle/contracts/generated/heddle/v1/LogAck";
import type { LogChunk__Output } from "@heddle/contracts/generated/heddle/v1/LogChunk";
import type { NodeReport__Output } from "@heddle/contracts/generated/heddle/v1/NodeReport";
import type { Register__Output } from "@heddle/contracts/generated/heddle/v1/Register";
import type { TaskCommand } from "@heddle/contracts/generated/heddle/v1/TaskCommand";
import type { TaskId } from "@heddle/contracts/generated/heddle/v1/TaskId";
import type { TaskReport__Output } from "@heddle/contracts/generated/heddle/v1/TaskReport";
import type { TaskSpec } from "@heddle/contracts/generated/heddle/v1/TaskSpec";
import type { TaskStatus__Output } from "@heddle/contracts/generated/heddle/v1/TaskStatus";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";
import { clusterService, taskLogsService, taskSessionMethod } from "@heddle/rpc/proto";
import { type BoundServer, bindServer, closeServer } from "@heddle/rpc/server";
import type { TestContext } from "vitest";

const clusterToken = "a-token-for-tests-only";

/** The parts of a master that a worker's tasks need: attachment, leases and logs. */
export class TestLeader {
  readonly folder = openFolder("heddle-tasks-");
  readonly #workers = new Set<ChildProcess>();
  readonly #sessions = new Set<LeaderSession>();
  readonly #logs = new Map<string, Buffer>();
  readonly #complete = new Set<string>();
  #server: BoundServer | undefined;
  #heldAcks: (() => void)[] | undefined;
  /** Chunks that arrived while none are taken. */
  #stalled: (() => void)[] | undefined;
  /** The latest registration. */
  register: Register__Output | undefined;
  heartbeats: NodeReport__Output["heartbeat"][] = [];

  async listen(): Promise<void> {
    this.#server = await bindServer({ host: "127.0.0.1", port: 0, credentials: { clusterToken } });
    this.#server.server.addService(clusterService, {
      attach: (stream: ServerDuplexStream<NodeReport__Output, AttachReply>) => {
        stream.on("data", ({ register, heartbeat }: NodeReport__Output) => {
          if (heartbeat) this.heartbeats.push(heartbeat);
          if (!register) return;
          this.register = register;
          stream.write({ heartbeatIntervalMs: 100, masterId: "test" });
        });
        stream.on("error", () => {});
        stream.on("end", () => stream.end());
      },
    });
    this.#server.server.addService(taskLogsService, {
      ship: (stream: ServerDuplexStream<LogChunk__Output, LogAck>) => {
        stream.on("data", (chunk: LogChunk__Output) =>
          this.#inTime(() => {
            const ack = this.#take(chunk);
            if (this.#heldAcks && ack.complete) this.#heldAcks.push(() => stream.write(ack));
            else stream.write(ack);
          }),
        );
        stream.on("error", () => {});
        stream.on("end", () => stream.end());
      },
      read: () => {},
    });
  }

  get address(): string {
    return this.#server?.address ?? "";
  }

  /** The credentials of a node that connects to this leader. */
  get credentials(): NodeCredentials {
    return { clusterToken, node: { role: "worker", name: "worker-1" } };
  }

  /** The shipped part of a stream. */
  log(rank = 0, stream = "stdout", attempt = 1, incarnation = 0): string {
    return this.#logs.get(`${attempt}/${rank}/${incarnation}/${stream}`)?.toString() ?? "";
  }

  isComplete(rank = 0, stream = "stdout", attempt = 1): boolean {
    return this.#complete.has(`${attempt}/${rank}/0/${stream}`);
  }

  /** From now on complete logs are not acknowledged. */
  holdAcks(): void {
    this.#heldAcks ??= [];
  }

  /** From now on no log is taken, as by busy masters. */
  stall(): void {
    this.#stalled ??= [];
  }

  unstall(): void {
    const stalled = this.#stalled ?? [];
    this.#stalled = undefined;
    for (const take of stalled) take();
  }

  #inTime(take: () => void): void {
    if (this.#stalled) this.#stalled.push(take);
    else take();
  }

  releaseAcks(): void {
    const held = this.#heldAcks ?? [];
    this.#heldAcks = undefined;
    for (const give of held) give();
  }

  /** `user`: another user and group of the worker; needs root. */
  async startWorker(
    settings: Readonly<Record<string, unknown>> = {},
    environment: Readonly<Record<string, string>> = {},
    user?: number | undefined,
  ): Promise<ChildProcess> {
    const argument = JSON.stringify({
      dataDirectory: join(this.folder, "worker"),
      masters: [this.address],
      clusterToken,
      name: "worker-1",
      ...settings,
    });
    const child = spawn(process.execPath, [...SCRIPTED_WORKER, argument], {
      stdio: ["ignore", "pipe", "inherit"],
      env: { ...process.env, ...environment },
      ...(user !== undefined && { uid: user, gid: user }),
      detached: true,
    });
    this.#workers.add(child);
    child.once("exit", () => this.#workers.delete(child));
    for await (const line of createInterface({ input: child.stdout })) {
      if (line.includes('"ready"')) break;
    }
    child.stdout.resume();
    this.register = undefined;
    await until("the worker is attached", () => this.register !== undefined);
    return child;
  }

  /** The id of the attached worker. */
  get nodeId(): string {
    return this.register?.nodeId ?? "";
  }

  /** A session with the worker as the leader of that term. */
  open(term = 1, leaseMs = 30_000, cluster = ""): LeaderSession {
    const session = new LeaderSession(this.register?.address ?? "", { term, leaseMs, cluster });
    this.#sessions.add(session);
    return session;
  }

  async close(): Promise<void> {
    for (const session of this.#sessions) session.close();
    for (const child of this.#workers) {
      const exited = once(child, "exit");
      child.kill("SIGCONT");
      child.kill("SIGTERM");
      await exited;
    }
    if (this.#server) await closeServer(this.#server.server, 100);
    rmSync(this.folder, { recursive: true, force: true });
  }

  #take({ file, offset, data, complete, first }: LogChunk__Output): LogAck {
    const { attempt, rank, incarnation } = file?.task ?? {};
    const key = `${attempt}/${rank}/${incarnation}/${file?.stream}`;
    let known = this.#logs.get(key) ?? Buffer.alloc(0);
    if (first > known.byteLength)
      known = Buffer.concat([known, Buffer.alloc(first - known.byteLength, "~")]);
    if (offset <= known.byteLength) known = Buffer.concat([known.subarray(0, offset), data]);
    this.#logs.set(key, known);
    if (complete) this.#complete.add(key);
    return { file, durable: known.byteLength, complete: this.#complete.has(key) };
  }
}

/** One leader's stream to the worker: every status that it reported, latest by task. */
export class LeaderSession {
  readonly statuses = new Map<string, TaskStatus__Output>();
  /** Every reported progress line, once. */
  readonly progressLines: string[] = [];
  inventory: readonly TaskStatus__Output[] | undefined;
  /** The latest report of jobs with a folder of checkpoints and no task. */
  folders: readonly string[] = [];
  error: Error | undefined;
  /** Whether requests for the lease are answered. */
  renews = true;
  readonly #peer: Peer;
  readonly #stream: ClientDuplexStream<TaskCommand, TaskReport__Output>;

  constructor(address: string, hello: { term: number; leaseMs: number; cluster: string }) {
    this.#peer = new Peer(address, { clusterToken }, "worker");
    this.#stream = this.#peer.duplex(taskSessionMethod);
    this.#stream.on("error", (error: Error) => {
      this.error = error;
    });
    this.#stream.on("data", (report: TaskReport__Output) => this.#receive(report));
    this.send({ hello: { ...hello, masterId: "test" } });
  }

  send(command: TaskCommand): void {
    this.#stream.write(command);
  }

  /** Leases the task and waits for the acknowledgement. */
  async lease(spec: Partial<TaskSpec>, task: TaskId = taskId(), devices: number[] = []) {
    await until("the worker has its lease", () => this.hasLease);
    this.send({ lease: { task, spec: { ...taskSpec, ...spec }, devices, gpuMilli: 1_000 } });
    await this.reaches("leased", task);
  }

  async start(spec: Partial<TaskSpec>, task: TaskId = taskId(), devices: number[] = []) {
    await this.lease(spec, task, devices);
    this.begin(task);
    await this.reaches("running", task);
  }

  /** Starts a task that is leased. */
  begin(task: TaskId = taskId()): void {
    this.send({ start: { task, peers: [this.status(task)?.rendezvous ?? ""] } });
  }

  status(task: TaskId = taskId()): TaskStatus__Output | undefined {
    return this.statuses.get(statusKey(task));
  }

  /** Waits for the phase or a later one. */
  async reaches(
    phase: string,
    task: TaskId = taskId(),
    timeoutMs = 100_000,
  ): Promise<TaskStatus__Output> {
    const order = ["leased", "starting", "running", "stopping", "exited"];
    const at = () => order.indexOf(this.status(task)?.phase ?? "");
    await until(`the task is ${phase}`, () => at() >= order.indexOf(phase), timeoutMs);
    return this.status(task) as TaskStatus__Output;
  }

  hasLease = false;

  close(): void {
    this.#stream.cancel();
    this.#peer.close();
  }

  #receive({ inventory, status, leaseRequest, checkpointFolders }: TaskReport__Output): void {
    if (checkpointFolders) this.folders = checkpointFolders.jobIds;
    if (inventory) this.inventory = inventory.tasks;
    for (const each of [...(inventory?.tasks ?? []), ...(status ? [status] : [])]) {
      const line = each.progress?.line;
      if (line && this.progressLines.at(-1) !== line) this.progressLines.push(line);
      if (each.task) this.statuses.set(statusKey(each.task), each);
    }
    if (!leaseRequest || !this.renews) return;
    this.send({ renew: { request: leaseRequest.request } });
    this.hasLease = true;
  }
}

function statusKey({ jobId, attempt, rank, incarnation = 0 }: TaskId): string {
  return `${jobId}/${attempt}/${rank}/${incarnation}`;
}

/** A temporary folder that tasks can write to, with any user. */
export function openFolder(prefix: string): string {
  const folder = mkdtempSync(join(tmpdir(), prefix));
  chmodSync(folder, 0o777);
  return folder;
}

/** A listening leader, which is closed at the test's end. */
export async function newLeader({
  onTestFinished,
}: Pick<TestContext, "onTestFinished">): Promise<TestLeader> {
  const leader = new TestLeader();
  onTestFinished(() => leader.close());
  await leader.listen();
  return leader;
}

export function taskId(rank = 0, attempt = 1, jobId = "job_A"): TaskId {
  return { jobId, attempt, rank };
}

export function shell(line: string): Partial<TaskSpec> {
  return { command: ["/bin/sh", "-c", line] };
}

const taskSpec: TaskSpec = {
  jobName: "test",
  project: "default",
  executor: "process",
  tasks: 1,
  checkpointSignal: "SIGUSR1",
  keepCheckpoints: 2,
  progressIntervalMs: 200,
};
