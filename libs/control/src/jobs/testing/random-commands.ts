import type { Random } from "@heddle/base/random";
import { jobEntry, replicaEntry } from "@heddle/scheduler/plan-entry";
import type { ControlCommand } from "../../command.ts";
import type { ControlState } from "../../state.ts";
import type {
  CommitPlanCommand,
  JobsCommand,
  PlannedStart,
  TaskReportEntry,
  WorkerReport,
} from "../records/commands.ts";
import { type JobRecord, type TaskRecord, taskKey } from "../records/records.ts";
import { missingRanks } from "../records/recovery.ts";
import { jobId, jobSpec, nodeOffer, scheduledModel } from "./specs.ts";

const NODES = ["a", "b"];
const SERVERS = ["p", "q"];
const PHASES = [
  "leased",
  "starting",
  "running",
  "running",
  "running",
  "stopping",
  "exited",
] as const;
/** The cluster's limits in all random plans. */
export const RANDOM_LIMITS = { jobTimeoutMs: 3_600_000, maxConcurrentJobs: 4 };
const REASONS = ["ExitCode", "Hang", "GpuFault", "NodeLost", "CheckpointCorrupt"] as const;

const TRAINING = { command: undefined, algorithm: "ppo", config: { parameter_servers: 3 } };

/**
 * Draws commands that are likely to change the present state, and some invalid ones: stale reports,
 * taken places, incomplete gangs.
 */
export class RandomCommands {
  readonly #random: Random;
  readonly #state: ControlState;
  #atMs = 1_000;
  #jobs = 0;
  /** Commands that precede the random ones. */
  readonly #script: (() => JobsCommand)[];

  constructor(random: Random, state: ControlState) {
    this.#random = random;
    this.#state = state;
    // Random draws rarely produce a running gang, so a quarter of the sequences start with one.
    this.#script = this.#below(4) === 0 ? this.#runningGang() : [];
  }

  next(): ControlCommand {
    this.#atMs += this.#below(12) === 0 ? this.#below(60_000) : this.#below(50);
    const scripted = this.#script.shift();
    if (scripted) return scripted();
    const away = this.#below(8) === 0 ? this.#awayCommand() : undefined;
    if (away) return away;
    const draw = this.#below(100);
    if (draw < 3 || this.#state.nodes.size < 2) return this.#join();
    if (draw < 12 || this.#jobs === 0) return this.#submit();
    if (draw < 30) return this.#plan();
    if (draw < 73) return this.#report();
    if (draw < 76) return this.#confirmFailures();
    if (draw < 85) return this.#request();
    if (draw < 92) return this.#nodeCommand();
    if (draw < 94) return this.#setQuota();
    if (draw < 95) return this.#serve();
    if (draw < 97) return this.#deploy();
    if (draw < 99) return this.#serverCommand();
    return { type: "clock.tick", atMs: this.#atMs };
  }

  /** A job with a rank on each node. */
  #runningGang(): (() => JobsCommand)[] {
    const gang = { tasks: 2, resources: { gpu_count: 2 }, failure_tolerance: this.#below(2) };
    const placements = NODES.map((nodeId) => ({ nodeId, devices: [0] }));
    const says = (nodeId: string, phase: "leased" | "running") => (): JobsCommand => {
      const reports = [{ jobId: jobId(0), attempt: 1, rank: NODES.indexOf(nodeId), phase }];
      return { type: "tasks.report", atMs: this.#atMs, nodeId, reports };
    };
    return [
      ...NODES.map((id) => () => this.#join(id)),
      () => this.#submit(gang),
      () => this.#plan([{ entry: jobEntry(jobId(0)), placements }]),
      ...(["leased", "running"] as const).flatMap((phase) => NODES.map((id) => says(id, phase))),
    ];
  }

  #join(id = this.#pick(NODES)): JobsCommand {
    const offer = nodeOffer(id, {
      gpuCount: this.#below(2) === 0 ? 3 : 4,
      executors: ["process", "training"],
      algorithms: ["ppo"],
    });
    return { type: "node.join", atMs: this.#atMs, offer };
  }

  #serverCommand(): JobsCommand {
    const id = this.#pick(SERVERS);
    if (this.#below(3) === 0) return { type: "server.lost", atMs: this.#atMs, serverIds: [id] };
    const incarnation = String(this.#below(3));
    const server = { id, name: id, address: `${id}:1`, incarnation };
    return { type: "server.join", atMs: this.#atMs, server };
  }

  #submit(change: Record<string, unknown> = {}): JobsCommand {
    const n = this.#jobs++;
    const tasks = 1 + this.#below(3);
    const dependency = this.#below(4) === 0 ? [jobId(this.#below(n + 2))] : [];
    const spec = jobSpec({
      name: `n${this.#below(6)}`,
      dependencies: dependency,
      resources: { gpu_count: this.#below(5) === 0 ? 0.5 : tasks },
      tasks: this.#below(5) === 0 ? 1 : tasks,
      retry_limit: this.#below(3),
      failure_tolerance: 0,
      ...(tasks > 1 && this.#below(2) === 0 ? { tasks, failure_tolerance: 1 } : {}),
      checkpoint_config: { grace_seconds: this.#below(30) },
      ...(this.#below(5) === 0 ? TRAINING : {}),
      ...change,
    });
    return { type: "job.submit", atMs: this.#atMs, jobId: jobId(n), spec };
  }

  #plan(chosen?: PlannedStart[]): JobsCommand {
    const jobs = [...this.#state.jobs.values()];
    const drawn = jobs.filter(() => this.#below(3) > 0).map((job) => this.#start(job));
    const starts = chosen ?? [...drawn, ...this.#replicas()];
    const some = (of: number) => jobs.filter(() => this.#below(of) === 0).map(({ id }) => id);
    const waiting = jobs.find(({ state }) => state === "pending") ?? jobs[0];
    const forJobId = (this.#below(4) === 0 ? jobs[0] : waiting)?.id ?? "";
    // A limit that all jobs have passed would prevent every start.
    const isLate = starts.length === 0 && this.#below(2) === 0;
    return {
      type: "plan.commit",
      atMs: this.#atMs,
      basedOnIndex: 0,
      overcommitRatio: 1,
      limits: { ...RANDOM_LIMITS, ...(isLate ? { jobTimeoutMs: 1 } : {}) },
      acknowledgeMs: 10_000,
      admitted: jobs.map(({ id }) => id),
      unsatisfiable: some(40).map((id) => ({ jobId: id, message: "never" })),
      starts,
      preemptions: some(10).map((victimId) => ({
        victimId,
        forEntry: jobEntry(forJobId),
      })),
      expired: some(isLate ? 3 : 60),
      ...this.#ranked(forJobId),
    };
  }

  /** One plan in four has the reservation of an earlier version; the others rank jobs in any order. */
  #ranked(jobId: string): Partial<CommitPlanCommand> {
    const reservation = { jobId, startAtMs: this.#atMs + 5 };
    if (this.#below(4) === 0) return { reservation };
    const ids = [...this.#state.jobs.keys()].filter(() => this.#below(4) === 0);
    const ranked = [jobId, ...ids.filter((id) => id !== jobId).reverse()].map((id) =>
      this.#below(2) === 0 ? { jobId: id } : { ...reservation, jobId: id },
    );
    return { ranked: this.#below(4) === 0 ? [] : ranked };
  }

  /** Bounds that some starts exceed and some do not; sometimes below the present holdings. */
  #setQuota(): JobsCommand {
    const quota = {
      gpuMilli: this.#below(2) === 0 ? 1_000 * this.#below(9) : undefined,
      gpuHours: this.#below(2) === 0 ? this.#below(12) : undefined,
      queueLength: this.#below(3) === 0 ? this.#below(4) : undefined,
    };
    return { type: "project.set", atMs: this.#atMs, name: "default", weight: 1, quota };
  }

  #serve(): JobsCommand {
    const devices = this.#below(2) === 0 ? [] : [this.#below(3)];
    const serving = devices.length === 0 ? [] : [{ deployment: "m", devices }];
    return { type: "node.update", atMs: this.#atMs, nodeId: this.#pick(NODES), serving };
  }

  /**
   * Deploys a model whose replicas the scheduler places, removes it, or reports a replica's exit.
   */
  #deploy(): ControlCommand {
    const atMs = this.#atMs;
    const place = [...this.#state.replicas.values()].at(0);
    if (place && this.#below(2) === 0) {
      const { deployment, nodeId } = place;
      const type = this.#below(2) === 0 ? "replica.release" : "replica.ready";
      return { type, atMs, deployment, nodeId };
    }
    if (this.#state.deployments.size > 0) return { type: "model.remove", atMs, id: "m" };
    return scheduledModel("m", 1 + this.#below(2), atMs);
  }

  /** Random places: most are refused when the nodes are full. */
  #start(job: JobRecord): PlannedStart {
    const isRecovery = job.state === "recovering";
    const tasksOf = () => this.#tasksOf(job);
    const ranks = isRecovery ? missingRanks({ tasksOf }, job).length : job.tasks;
    const count = Math.max(0, ranks - (this.#below(10) === 0 ? 1 : 0));
    const gpus = Math.max(
      1,
      Math.round(this.#state.specs.get(job.id)!.resources.gpu_count / job.tasks),
    );
    const placements = Array.from({ length: count }, () => {
      const first = this.#below(4);
      return {
        nodeId: this.#pick(NODES),
        devices: Array.from({ length: gpus }, (_, at) => (first + at) % 4),
      };
    });
    return { entry: { kind: isRecovery ? "recovery" : "job", jobId: job.id }, placements };
  }

  #replicas(): PlannedStart[] {
    return [...this.#state.deployments.keys()].map((deployment) => ({
      entry: replicaEntry(deployment),
      placements: [{ nodeId: this.#pick(NODES), devices: [this.#below(4)] }],
    }));
  }

  #tasksOf(job: JobRecord): readonly TaskRecord[] {
    return Array.from({ length: job.tasks }, (_, rank) =>
      this.#state.tasks.get(taskKey(job.id, job.attempt, rank)),
    ).filter((task) => task !== undefined);
  }

  /** A node reports its tasks, and sometimes another one in the same entry. */
  #report(): JobsCommand {
    const others = this.#below(4) === 0 ? [this.#nodeReport()] : undefined;
    const statusTimeoutMs = this.#below(2) === 0 ? 20_000 : undefined;
    const report = this.#nodeReport();
    return { type: "tasks.report", atMs: this.#atMs, ...report, others, statusTimeoutMs };
  }

  /** Sometimes also of an attempt that has ended. */
  #nodeReport(): WorkerReport {
    const live = [...this.#state.tasks.values()].filter(({ phase }) => phase !== "exited");
    const nodeId = live.length === 0 ? "a" : this.#pick(live).nodeId;
    const own = [...this.#state.tasks.values()].filter(
      (task) => task.nodeId === nodeId || this.#below(20) === 0,
    );
    const goal = this.#pick(PHASES);
    const isFault = this.#below(3) === 0;
    const reports = own.map((task): TaskReportEntry => {
      const { jobId: id, rank } = task;
      const attempt = Math.max(1, task.attempt - (this.#below(10) === 0 ? 1 : 0));
      const phase = this.#below(12) === 0 ? this.#pick(PHASES) : goal;
      if (phase !== "exited") return { jobId: id, attempt, rank, phase };
      const reason = isFault ? this.#pick(REASONS) : undefined;
      const exit = { reason, endedAtMs: this.#atMs };
      if (reason) return { jobId: id, attempt, rank, phase, exit };
      const artifacts = [{ name: "out", bytes: 1 + rank, sha256: "0".repeat(64) }];
      return { jobId: id, attempt, rank, phase, exit: { ...exit, artifacts } };
    });
    return { nodeId, reports };
  }

  /** Confirms unconfirmed failures, sometimes one that was already checked. */
  #confirmFailures(): JobsCommand {
    const entries = [...this.#state.jobs.values()]
      .filter((job) => job.suspectedMs !== undefined || this.#below(10) === 0)
      .map(({ id: jobId, attempt, suspectedMs = 0 }) => {
        return { jobId, attempt, suspectedMs: suspectedMs - (this.#below(10) === 0 ? 1 : 0) };
      });
    return { type: "jobs.confirmFailures", atMs: this.#atMs, entries };
  }

  #request(): JobsCommand {
    const request = this.#pick(["cancel", "suspend", "suspend", "resume", "resume"] as const);
    return {
      type: "job.request",
      atMs: this.#atMs,
      jobId: jobId(this.#below(this.#jobs)),
      request,
    };
  }

  #nodeCommand(): JobsCommand {
    const nodeId = this.#pick(NODES);
    const atMs = this.#atMs;
    switch (this.#below(5)) {
      case 0:
        return { type: "node.drain", atMs, nodeId, byMs: atMs + this.#below(30_000) };
      case 1:
        return { type: "node.resume", atMs, nodeId, healthyDevices: [0, 2] };
      case 2:
        return {
          type: "node.quarantine",
          atMs,
          nodeId,
          device: 0,
          why: this.#below(2) === 0 ? "Xid 79" : undefined,
        };
      default:
        return { type: "node.lost", atMs, nodeIds: [nodeId], fencedAtMs: atMs + 20_000 };
    }
  }

  /** A lost node returns, or gets a drain for its return. */
  #awayCommand(): JobsCommand | undefined {
    const lost = [...this.#state.nodes.values()].find(({ state }) => state === "lost");
    if (!lost) return undefined;
    const { id: nodeId } = lost.offer;
    const { lostIndex } = lost;
    if (lostIndex !== undefined && this.#below(2) === 0) {
      return { type: "node.fenced", atMs: this.#atMs, losses: [{ nodeId, lostIndex }] };
    }
    if (this.#below(2) === 0) return this.#join(nodeId);
    const byMs = this.#atMs + this.#below(30_000);
    return { type: "node.drain", atMs: this.#atMs, nodeId, byMs };
  }

  #below(bound: number): number {
    return Math.floor(this.#random() * bound);
  }

  #pick<T>(from: readonly T[]): T {
    return from[this.#below(from.length)]!;
  }
}
