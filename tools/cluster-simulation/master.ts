import { createSecretKey } from "node:crypto";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { AppError } from "@heddle/base/errors";
import type { ControlCommand, ControlReply } from "@heddle/control/command";
import { logCommand } from "@heddle/control/jobs/records/logged-command";
import type { LogCommand } from "@heddle/control/replicated-control";
import { createLogger } from "@heddle/observability/logger";
import { serveControllers } from "@heddle/rpc/nest/serve-controllers";
import { Dice } from "@heddle/simulation/dice";
import { encodeCommand } from "@heddle/simulation/simulated-machine";
import type { SimulatedMember } from "@heddle/simulation/simulated-member";
import type { DynamicModule } from "@nestjs/common";
import { configModule } from "../../apps/master/dist/config/config.module.js";
import type { GroupStatus } from "../../apps/master/dist/control-plane/control-group.js";
import type { ControlPlane } from "../../apps/master/dist/control-plane/control-plane.js";
import { controlPlaneModule } from "../../apps/master/dist/control-plane/control-plane.module.js";
import { controlCommandOf } from "../../apps/master/dist/control-plane/raft/control-machine.js";
import { NodesModule } from "../../apps/master/dist/nodes/nodes.module.js";
import { OrchestrationModule } from "../../apps/master/dist/orchestration/orchestration.module.js";
import { Scheduling } from "../../apps/master/dist/orchestration/scheduling/scheduling.js";
import { TasksModule } from "../../apps/master/dist/orchestration/tasks/tasks.module.js";
import { PluginsModule } from "../../apps/master/dist/plugins/plugins.module.js";
import { LogReader } from "../../apps/master/dist/task-output/log-reader.js";
import { testConfig } from "../../apps/master/test/test-config.ts";
import { keyOf } from "../../apps/worker/dist/records/task-plan.js";
import { type MachineClock, type MachineDisk, SimulatedProcess } from "./simulated-process.ts";
import { bindServer } from "./stand-ins/server.ts";
import type { ClusterWorld } from "./world.ts";

const CLUSTER_ID = "simulated";
export const CLUSTER_TOKEN = "a-token-for-simulations";
export const MASTER_PORT = 9_000;
const POLL_US = 50_000;
/** A line of the worker's in a log, where its disk was full. */
const FULL_DISK_NOTE = "[heddle: the worker's disk was full";

class SimulatedMasterModule {}

/**
 * A master: the member of the Raft group, and the modules of the real master on it. They serve nodes,
 * schedule, and run tasks; they start when the member runs, and end with it.
 */
export class SimulatedMaster {
  readonly member: SimulatedMember;
  readonly name: string;
  readonly #world: ClusterWorld;
  readonly #directory: string;
  readonly clock: MachineClock;
  readonly disk: MachineDisk;
  readonly #leaseMs: number;
  readonly #nodeLostMs: number;
  #process: SimulatedProcess | undefined;
  #plane: SimulatedControlPlane | undefined;
  #logs: LogReader | undefined;
  #scheduling: Scheduling | undefined;
  #starts = 0;

  constructor(
    world: ClusterWorld,
    member: SimulatedMember,
    settings: {
      readonly directory: string;
      readonly clock: MachineClock;
      readonly disk: MachineDisk;
      readonly leaseMs: number;
      /** After this silence a node counts as lost. */
      readonly nodeLostMs: number;
    },
  ) {
    this.#world = world;
    this.member = member;
    this.name = member.member.name;
    this.#directory = join(settings.directory, this.name);
    this.clock = settings.clock;
    this.disk = settings.disk;
    this.#leaseMs = settings.leaseMs;
    this.#nodeLostMs = settings.nodeLostMs;
    mkdirSync(this.#directory, { recursive: true });
    this.#follow();
  }

  get process(): SimulatedProcess | undefined {
    return this.#process;
  }

  get plane(): SimulatedControlPlane | undefined {
    return this.#process?.isAlive ? this.#plane : undefined;
  }

  /** The lines of a job's standard output, by task, as a reader at this master gets them. */
  async logsOf(jobId: string): Promise<ReadonlyMap<string, string>> {
    const logs = new Map<string, string>();
    const query = { jobId, fromAttempt: 1, streams: ["stdout"], follow: false } as const;
    const batches = await this.#logs?.read(query, new AbortController().signal);
    for await (const { items } of batches ?? []) {
      for (const { name, text, gapBytes } of items) {
        if (text.toString().startsWith(FULL_DISK_NOTE)) continue;
        const key = keyOf({ ...name, incarnation: name.incarnation ?? 0 });
        const line = gapBytes > 0 ? `[${gapBytes} bytes are lost]` : text.toString();
        logs.set(key, `${logs.get(key) ?? ""}${line}\n`);
      }
    }
    return logs;
  }

  /** The attempts of jobs for whose waiting this master gives no reason. */
  async unexplained(ids: readonly string[]): Promise<string[]> {
    const found: string[] = [];
    for (const id of ids) {
      const job = this.plane?.state.jobs.get(id);
      if (job?.state !== "accepted" && job?.state !== "pending") continue;
      const explanation = await this.#scheduling?.explainer.explain(job);
      if (explanation?.blockers.length === 0) found.push(`${id}/${job.attempt}`);
    }
    return found;
  }

  /** Starts the modules when the member runs, and pauses them with it. */
  #follow(): void {
    this.#world.queue.after(POLL_US, () => {
      const { state } = this.member;
      if (state === "running" && !this.#process) this.#start();
      if (this.#process && (state === "paused") !== this.#process.isPaused) {
        if (state === "paused") {
          this.#process.pause();
          this.#world.network.paused(this.#process);
        } else this.#process.resume();
      }
      this.#follow();
    });
  }

  #start(): void {
    const { queue, seed } = this.#world;
    const dice = new Dice(seed, `master ${this.name} ${this.#starts++}`);
    const process = new SimulatedProcess(this.name, this.name, {
      queue,
      dice,
      clock: this.clock,
      disk: this.disk,
    });
    this.#process = process;
    this.member.onEnd.add(() => {
      this.#process = undefined;
      process.end();
    });
    const plane = new SimulatedControlPlane(this.member, process);
    this.#plane = plane;
    process
      .run(() => this.#serve(plane))
      .catch((error: Error) => {
        if (process.isAlive) {
          this.#world.checker.demand(
            false,
            "a master starts",
            () => `${this.name}: ${error.stack}`,
          );
        }
      });
  }

  async #serve(control: ControlPlane): Promise<void> {
    const log = createLogger({ service: "master", level: "silent" });
    const config = testConfig(this.#directory, {
      masterId: this.name,
      grpcPort: MASTER_PORT,
      jobTimes: {
        leaseMs: this.#leaseMs,
        nodeLostMs: this.#nodeLostMs,
        acknowledgeMs: 5_000,
      },
    });
    const node = { role: "master", name: this.name } as const;
    const credentials = { clusterToken: CLUSTER_TOKEN, node, cluster: CLUSTER_ID };
    const { server } = await bindServer({ host: this.name, port: MASTER_PORT, credentials });
    const pepper = createSecretKey(Buffer.from("pepper"));
    const open = { control, pepper, credentials, authorityHash: undefined };
    const module: DynamicModule = {
      module: SimulatedMasterModule,
      imports: [
        configModule(config, log),
        controlPlaneModule(open),
        PluginsModule,
        NodesModule,
        OrchestrationModule,
        TasksModule,
      ],
    };
    const app = await serveControllers(
      module,
      server as unknown as Parameters<typeof serveControllers>[1],
    );
    this.#logs = app.get(LogReader, { strict: false });
    this.#scheduling = app.get(Scheduling, { strict: false });
    this.#world.trace(() => `${this.name}: serves`);
  }
}

/** The control plane of a simulated member, as the master's modules see it. */
export class SimulatedControlPlane implements ControlPlane {
  readonly fault: AppError | undefined;
  readonly #member: SimulatedMember;
  readonly #listeners = new Set<(command: ControlCommand | undefined) => void>();

  constructor(member: SimulatedMember, process: SimulatedProcess) {
    this.#member = member;
    member.machine.onEntry = (entry) => {
      const command = controlCommandOf(entry);
      if (!command && entry) return;
      process.run(() => {
        for (const listener of this.#listeners) listener(command);
      });
    };
  }

  get state() {
    return this.#member.machine.control.state;
  }

  get jobs() {
    return this.#member.machine.control.jobs;
  }

  get documents() {
    return this.#member.machine.control.documents;
  }

  get appliedIndex(): number {
    return this.#member.machine.control.index;
  }

  propose(command: ControlCommand): Promise<ControlReply> {
    const { version } = this.#member.machine.control;
    return this.#propose({ type: "control", command: logCommand(command, version) });
  }

  get logTimeMs(): number {
    return this.#member.machine.control.logTimeMs;
  }

  keptAnswer(id: string) {
    return this.#member.machine.control.keptAnswer(id);
  }

  onApplied(listener: (command: ControlCommand | undefined) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  get group() {
    return this as unknown as NonNullable<ControlPlane["group"]>;
  }

  status(): GroupStatus {
    const status = this.#replica.status();
    const { control } = this.#member.machine;
    return {
      ...status,
      cluster: CLUSTER_ID,
      commands: control.commands,
      clusterVersion: control.version,
      supportedVersion: control.newest,
      members: status.members.map((member) => ({ ...member, connected: true })),
    };
  }

  readBarrier(): Promise<void> {
    return this.#replica.readBarrier();
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  get #replica() {
    const { replica } = this.#member;
    if (!replica) throw new Error("a member without a replica is used");
    return replica;
  }

  get version(): number {
    return this.#member.machine.control.version;
  }

  /** As the agreements of real masters do it. */
  raiseVersion(version: number): Promise<ControlReply> {
    return this.#propose({ type: "version.raise", atMs: Date.now(), version });
  }

  async #propose(entry: LogCommand): Promise<ControlReply> {
    return this.#replica.propose(encodeCommand(entry));
  }
}
