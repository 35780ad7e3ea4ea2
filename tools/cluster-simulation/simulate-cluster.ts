import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { NEWEST_VERSION } from "@heddle/control/cluster-version";
import { isTerminal } from "@heddle/control/jobs/records/lifecycle";
import type { JobFailureRecord } from "@heddle/control/jobs/records/records";
import { watchCores } from "@heddle/simulation/core-watch";
import { Dice } from "@heddle/simulation/dice";
import { EventQueue } from "@heddle/simulation/event-queue";
import { ClusterSafetyChecker, type Violation } from "@heddle/simulation/safety-checker";
import { type World as MemberWorld, SimulatedMember } from "@heddle/simulation/simulated-member";
import { SimulatedNetwork } from "@heddle/simulation/simulated-network";
import { Checker } from "./checker.ts";
import { JobClients } from "./clients.ts";
import { type ClusterBug, plantBug, raftBug } from "./cluster-bugs.ts";
import { CALM, type ClusterFault, ClusterFaults } from "./cluster-faults.ts";
import { LeaseOracle } from "./lease-oracle.ts";
import { checkLogs } from "./log-check.ts";
import { MASTER_PORT, SimulatedMaster } from "./master.ts";
import { Network } from "./network.ts";
import { ServerInSimulation } from "./nodes/parameter-server.ts";
import { WorkerInSimulation } from "./nodes/worker.ts";
import { WorkerMachine } from "./nodes/worker-machine.ts";
import { type MachineClock, realTimeout } from "./simulated-process.ts";
import { StateChecker } from "./state-checker.ts";
import { ShardOracle } from "./training/shard-oracle.ts";
import { type ClusterWorld, enterWorld } from "./world.ts";

export interface ClusterRun {
  readonly seed: number;
  /** Seconds of simulated time with faults. */
  readonly seconds?: number | undefined;
  /** These happen, and often, in place of those that the seed draws. */
  readonly faults?: readonly ClusterFault[] | undefined;
  /** These do not happen, though the seed draws them. */
  readonly without?: readonly ClusterFault[] | undefined;
  readonly bug?: ClusterBug | undefined;
  /** Whether some jobs train; else the seed draws it, and where faults are chosen none does. */
  readonly trains?: boolean | undefined;
  readonly onTrace?: ((line: string) => void) | undefined;
}

export interface ClusterResult {
  readonly seed: number;
  readonly violation: Violation | undefined;
  /** Simulated seconds from the start of the faults to its end. */
  readonly failedAtSeconds: number;
  readonly events: number;
  readonly accepted: number;
  readonly starts: number;
  /** Updates of parameters. */
  readonly updates: number;
  /** Shards that were restored from a checkpoint. */
  readonly restored: number;
  readonly faults: ReadonlyMap<string, number>;
  /** A hash of all that was traced: equal for runs of one seed. */
  readonly fingerprint: string;
}

/** Seconds without faults within which the first leader must be elected. */
const ELECTION_SECONDS = 30;
/** Seconds after the faults in which every accepted job must end, those that waited for others too. */
const HEAL_SECONDS = 900;
/** Seconds within which the logs of all jobs must be read. */
const READ_SECONDS = 120;
/** After this time without a start or an end of a task nothing is expected any more. */
const STILL_SECONDS = 90;
/** Short, so that leases end within a run; a silent node counts as lost before. */
const LEASES = [
  { leaseMs: 6_000, nodeLostMs: 4_200 },
  { leaseMs: 6_000, nodeLostMs: 2_400 },
  { leaseMs: 15_000, nodeLostMs: 3_000 },
];
/** Rates of wall clocks: far from real ones, so that code that measures time with them fails soon. */
const DRIFTS = [0.5, 1, 8];
/** Between two checks of jobs that wait, and for versions that every master supports. */
const POLL_US = 5_000_000;
const SETTLE_US = 200_000;
/** The share of runs in which some jobs train: they cost more. */
const TRAINING_SHARE = 0.12;
/** The mean time between two submissions for each worker. */
const MEAN_GAP_US = 4_000_000;
/** In the message of a job's failure. */
const NO_CHECKPOINT = "no checkpoint of job";
/** A run of this length in true time is stuck. */
const STUCK_MS = 600_000;

/** Runs one seed: whole masters and workers over simulated network, time and disks. */
export async function simulateCluster(run: ClusterRun): Promise<ClusterResult> {
  const memory = "/dev/shm";
  const folder = mkdtempSync(join(existsSync(memory) ? memory : tmpdir(), "heddle-simulation-"));
  const simulation = new ClusterSimulation(run, folder);
  const unwatch = simulation.watch();
  const uproot = plantBug(run.bug);
  try {
    return await simulation.run();
  } finally {
    uproot();
    unwatch();
    rmSync(folder, { recursive: true, force: true });
  }
}

class ClusterSimulation {
  readonly #run: ClusterRun;
  readonly #world: ClusterWorld;
  readonly #masters: readonly SimulatedMaster[];
  readonly #workers: readonly WorkerInSimulation[];
  readonly #servers: readonly ServerInSimulation[];
  readonly #members: MemberWorld;
  readonly #clients: JobClients;
  readonly #faults: ClusterFaults;
  readonly #hash = createHash("sha256");
  /** The masters begin with the build before this one, and are upgraded one by one. */
  readonly #isMixed: boolean;
  /** Jobs for whose waiting the leader gave no reason at the last check. */
  #unexplained: readonly string[] = [];
  #faultsUs = 0;
  /** When it is next checked whether all has ended. */
  #settleUs = 0;
  #isEnded = false;
  #changes = 0;
  #changedUs = 0;

  constructor(run: ClusterRun, folder: string) {
    this.#run = run;
    const { seed, onTrace } = run;
    const dice = new Dice(seed, "cluster");
    const queue = new EventQueue();
    const network = new Network(queue, new Dice(seed, "connections"));
    const checker = new Checker();
    const leases = new LeaseOracle(checker, { queue });
    const trace = (text: () => string) => {
      const line = `${(queue.nowUs / 1000).toFixed(2)} ms  ${text()}`;
      this.#hash.update(line);
      onTrace?.(line);
    };
    const shards = new ShardOracle(checker, () => queue.nowUs);
    const shared = { seed, directory: folder, queue, network, checker, leases, shards, trace };
    this.#world = { ...shared, machines: new Map() };
    enterWorld(this.#world);
    this.#isMixed = !run.faults && dice.chance(0.2);
    const accepted = new Set<string>();
    this.#members = this.#newMembers(dice, new StateChecker(checker, accepted));
    const clock = (): MachineClock => ({
      rate: dice.pick([0.98, 1, 1, 1.02]),
      drift: dice.pick(this.#isMixed ? [1] : DRIFTS),
      offsetMs: dice.pick([0, 0, -2_000, 5_000]),
      bootedUs: 0,
    });
    const disk = () => ({ maxUs: CALM.fileUs, isFull: false });
    const times = dice.pick(LEASES);
    this.#masters = [...this.#members.members.values()].map((member) => {
      if (this.#isMixed) member.newest = NEWEST_VERSION - 1;
      const own = { directory: folder, clock: clock(), disk: disk() };
      return new SimulatedMaster(this.#world, member, { ...own, ...times });
    });
    const addresses = this.#masters.map(({ name }) => `${name}:${MASTER_PORT}`);
    this.#workers = Array.from({ length: run.faults ? 4 : dice.whole(1, 5) }, (_, at) => {
      const parts = { ...directoryOf(folder, `w${at + 1}`), clock: clock(), disk: disk() };
      const machine = new WorkerMachine(this.#world, parts);
      this.#world.machines.set(machine.name, machine);
      return new WorkerInSimulation(this.#world, machine, addresses);
    });
    const training = new Dice(seed, "training");
    const trains = run.trains ?? (!run.faults && training.chance(TRAINING_SHARE));
    this.#servers = Array.from({ length: trains ? training.whole(2, 4) : 0 }, (_, at) => {
      const machine = { ...directoryOf(folder, `p${at + 1}`), clock: clock(), disk: disk() };
      return new ServerInSimulation(this.#world, machine, addresses);
    });
    this.#clients = new JobClients(this.#world, this.#masters, {
      meanGapUs: MEAN_GAP_US / this.#workers.length,
      accepted,
      quotaGpus: dice.pick([undefined, 2, 4]),
      trains,
    });
    this.#faults = new ClusterFaults(this.#world, {
      masters: this.#masters,
      workers: this.#workers,
      servers: this.#servers,
      raft: this.#members.network,
      chosen: run.faults,
      excluded: [...(run.without ?? []), ...(this.#isMixed ? (["clockJump"] as const) : [])],
    });
  }

  /** The Raft core's own invariants, as in the simulation of members alone, and the parameters'. */
  watch(): () => void {
    const { checker } = this.#members;
    const unwatchCores = watchCores({
      ready: (id, raw, ready) => checker.ready(id, raw, ready),
      received: () => undefined,
      asked: () => undefined,
    });
    const unwatchShards = this.#world.shards.watchUpdates();
    return () => {
      unwatchShards();
      unwatchCores();
    };
  }

  async run(): Promise<ClusterResult> {
    const { queue, checker } = this.#world;
    const { seconds = 60, seed } = this.#run;
    const onRejection = (reason: unknown) =>
      checker.demand(
        false,
        "no promise is left rejected",
        () => (reason as Error)?.stack ?? String(reason),
      );
    process.on("unhandledRejection", onRejection);
    const stopWatch = realTimeout(STUCK_MS, () => {
      checker.demand(false, "a run ends", () => `seed ${seed} is stuck at ${queue.nowUs} us`);
    });
    const hasEnded = () => this.#violation !== undefined;
    try {
      await this.#elect(hasEnded);
      if (!hasEnded()) await this.#live(seconds, hasEnded);
      if (!hasEnded()) this.#checkEnd();
      if (!hasEnded()) await this.#checkLogs(hasEnded);
    } catch (error) {
      checker.demand(false, "no code throws", () => (error as Error).stack ?? String(error));
    } finally {
      stopWatch();
      process.off("unhandledRejection", onRejection);
      for (const { member, process: each } of this.#masters) {
        each?.end();
        member.end("gone");
      }
      for (const { process: each } of [...this.#workers, ...this.#servers]) each?.end();
    }
    return {
      seed,
      violation: this.#violation,
      failedAtSeconds: (queue.nowUs - this.#faultsUs) / 1_000_000,
      events: queue.count,
      accepted: this.#clients.accepted.size,
      starts: checker.starts,
      ...this.#world.shards.counts,
      faults: this.#faults.counts,
      fingerprint: this.#hash.copy().digest("hex"),
    };
  }

  /** Waits for the first leader with a bound, as events never end without one. */
  async #elect(hasEnded: () => boolean): Promise<void> {
    const { queue, checker } = this.#world;
    for (const { member } of this.#masters) member.start();
    const lateUs = ELECTION_SECONDS * 1_000_000;
    await queue.run(() => hasEnded() || this.#leader() !== undefined || queue.nowUs >= lateUs);
    if (hasEnded()) return;
    checker.demand(
      this.#leader() !== undefined,
      "a leader leads",
      () => `none in ${ELECTION_SECONDS} s without faults`,
    );
  }

  /** Runs with faults for some seconds, then without until all jobs have ended. */
  async #live(seconds: number, hasEnded: () => boolean): Promise<void> {
    const { queue } = this.#world;
    this.#poll();
    if (this.#isMixed) this.#upgradeLater(seconds);
    for (const node of [...this.#workers, ...this.#servers]) node.start();
    this.#clients.start();
    this.#faults.start();
    this.#faultsUs = queue.nowUs;
    const endUs = queue.nowUs + seconds * 1_000_000;
    await queue.run(() => hasEnded() || queue.nowUs >= endUs);
    this.#clients.stop();
    this.#faults.endAll();
    for (const { machine } of this.#workers) machine.endSoon();
    this.#isEnded = true;
    const healUs = queue.nowUs + HEAL_SECONDS * 1_000_000;
    await queue.run(() => hasEnded() || this.#hasSettled() || queue.nowUs >= healUs);
  }

  /** What only the simulation does in place of the rest of a master, and what it asks of the leader. */
  #poll(): void {
    const leader = this.#leader();
    if (leader?.process && !leader.process.isPaused) leader.process.run(() => this.#ask(leader));
    this.#world.queue.after(POLL_US, () => this.#poll());
  }

  #ask(leader: SimulatedMaster): void {
    const newest = this.#masters.map(({ member }) => member.newest ?? NEWEST_VERSION);
    const version = Math.min(...newest);
    const { plane } = leader;
    if (plane && plane.version < version) plane.raiseVersion(version).catch(() => undefined);
    leader.unexplained(this.#open()).then(
      (attempts) => this.#judgeWaiting(attempts),
      () => undefined,
    );
  }

  /** A job that was to start in the next moment has no reason, but not for long. */
  #judgeWaiting(attempts: readonly string[]): void {
    const silent = attempts.filter((attempt) => this.#unexplained.includes(attempt));
    this.#world.checker.demand(silent.length === 0, "a waiting job says why", () => silent.join());
    this.#unexplained = attempts;
  }

  #upgradeLater(seconds: number): void {
    const { queue, seed } = this.#world;
    const dice = new Dice(seed, "upgrade");
    for (const { member } of this.#masters) {
      queue.after(dice.between(0, seconds * 1_000_000), () => {
        member.newest = undefined;
        member.wake();
        member.crash();
        member.start();
      });
    }
  }

  get #violation(): Violation | undefined {
    return this.#world.checker.violation ?? this.#members.checker.violation;
  }

  #leader(): SimulatedMaster | undefined {
    return this.#masters.find(
      ({ member, plane }) => plane && member.replica?.status().isActiveLeader,
    );
  }

  /** Jobs that have not ended in the leader's state: of accepted ones, and of those of unknown outcome. */
  #open(): string[] {
    const state = this.#leader()?.plane?.state;
    if (!state) return ["no leader"];
    const ids = new Set([...this.#clients.accepted, ...state.jobs.keys()]);
    return [...ids].filter((id) => {
      const job = state.jobs.get(id);
      return !job || !isTerminal(job.state);
    });
  }

  /** Checked at intervals, not at each event. */
  #hasSettled(): boolean {
    const { nowUs } = this.#world.queue;
    if (nowUs < this.#settleUs) return false;
    this.#settleUs = nowUs + SETTLE_US;
    return this.#allEnded() || this.#isStill();
  }

  #isStill(): boolean {
    const { queue, checker } = this.#world;
    if (checker.changes !== this.#changes) {
      this.#changes = checker.changes;
      this.#changedUs = queue.nowUs;
    }
    return queue.nowUs - this.#changedUs > STILL_SECONDS * 1_000_000;
  }

  /** Tasks get a signal when their job has failed, and some take their time to end. */
  #allEnded(): boolean {
    return this.#open().length === 0 && this.#world.checker.running === 0;
  }

  #checkEnd(): void {
    const { checker } = this.#world;
    const open = this.#open();
    const state = this.#leader()?.plane?.state;
    checker.demand(open.length === 0, "every job ends", () =>
      open.map((id) => `${id} is ${state?.jobs.get(id)?.state ?? "missing"}`).join(", "),
    );
    checker.demand(
      checker.running === 0,
      "no task runs after its job",
      () => `${checker.running} run`,
    );
    if (this.#servers.every(({ hasLostDisk }) => !hasLostDisk)) {
      for (const { id, failure } of state?.jobs.values() ?? []) this.#checkFailure(id, failure);
    }
  }

  /** Disks keep checkpoints; a server that has them may be away, but not for long. */
  #checkFailure(id: string, failure: JobFailureRecord | undefined): void {
    this.#world.checker.demand(
      !failure?.message.includes(NO_CHECKPOINT),
      "no job fails for want of a checkpoint that a disk has",
      () => `${id}: ${failure?.message}`,
    );
  }

  /** Any master gives the logs of all jobs. */
  async #checkLogs(hasEnded: () => boolean): Promise<void> {
    const { queue, checker } = this.#world;
    const master = this.#masters.find(({ plane }) => plane);
    if (!master?.process) return;
    let isDone = false;
    const lost = new Set(
      this.#workers.flatMap(({ isGone, machine }) => (isGone ? machine.name : [])),
    );
    master.process
      .run(() => checkLogs(checker, master, this.#clients.accepted, lost))
      .then(
        () => {
          isDone = true;
        },
        (error: Error) =>
          checker.demand(false, "logs can be read", () => error.stack ?? error.message),
      );
    const lateUs = queue.nowUs + READ_SECONDS * 1_000_000;
    await queue.run(() => isDone || hasEnded() || queue.nowUs >= lateUs);
    checker.demand(isDone, "logs can be read", () => `not in ${READ_SECONDS} s`);
  }

  #newMembers(dice: Dice, states: StateChecker): MemberWorld {
    const { seed } = this.#run;
    const { queue, trace } = this.#world;
    const members = new Map<number, SimulatedMember>();
    const network = new SimulatedNetwork(queue, new Dice(seed, "network"), (message) =>
      members.get(message.to)?.deliver(message),
    );
    const world: MemberWorld = {
      seed,
      queue,
      network,
      checker: new ClusterSafetyChecker(),
      members,
      bug: raftBug(this.#run.bug),
      settings: {
        tickUs: 50_000,
        electionTicks: dice.whole(5, 12),
        requestTicks: 60,
        snapshotEntries: dice.pick([50, 400]),
        trailingEntries: 20,
        segmentBytes: 256 * 1024,
      },
      isEnded: () => this.#isEnded,
      watch: (control) => states.applied(control),
      trace,
    };
    const names = Array.from({ length: dice.pick([1, 3, 3, 3]) }, (_, at) => `m${at + 1}`);
    const first = names.map((name, at) => ({
      id: at + 1,
      name,
      address: `${name}:${MASTER_PORT}`,
      nonce: name,
    }));
    for (const member of first) members.set(member.id, new SimulatedMember(world, member, first));
    return world;
  }
}

/** A machine's name and its new directory. */
function directoryOf(folder: string, name: string) {
  const directory = join(folder, name);
  mkdirSync(directory);
  return { name, directory };
}
