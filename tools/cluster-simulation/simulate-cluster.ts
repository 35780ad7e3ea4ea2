import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isTerminal } from "@heddle/control/jobs/records/lifecycle";
import { watchCores } from "@heddle/simulation/core-watch";
import { Dice } from "@heddle/simulation/dice";
import { EventQueue } from "@heddle/simulation/event-queue";
import { ClusterSafetyChecker, type Violation } from "@heddle/simulation/safety-checker";
import { type World as MemberWorld, SimulatedMember } from "@heddle/simulation/simulated-member";
import { SimulatedNetwork } from "@heddle/simulation/simulated-network";
import { Checker } from "./checker.ts";
import { JobClients } from "./clients.ts";
import { type ClusterBug, plantBug } from "./cluster-bugs.ts";
import { type ClusterFault, ClusterFaults } from "./cluster-faults.ts";
import { MASTER_PORT, SimulatedMaster } from "./master.ts";
import { Network } from "./network.ts";
import { type MachineClock, realTimeout } from "./simulated-process.ts";
import { WorkerInSimulation } from "./worker.ts";
import { WorkerMachine } from "./worker-machine.ts";
import { type ClusterWorld, enterWorld } from "./world.ts";

export interface ClusterRun {
  readonly seed: number;
  /** Seconds of simulated time with faults. */
  readonly seconds?: number | undefined;
  /** These happen, and often, in place of those that the seed draws. */
  readonly faults?: readonly ClusterFault[] | undefined;
  readonly bug?: ClusterBug | undefined;
  readonly onTrace?: ((line: string) => void) | undefined;
}

export interface ClusterResult {
  readonly seed: number;
  readonly violation: Violation | undefined;
  readonly events: number;
  readonly accepted: number;
  readonly starts: number;
  readonly faults: ReadonlyMap<string, number>;
  /** A hash of all that was traced: equal for runs of one seed. */
  readonly fingerprint: string;
}

/** Seconds after the faults in which every accepted job must end, those that waited for others too. */
const HEAL_SECONDS = 900;
/** After this time without a start or an end of a task nothing is expected any more. */
const STILL_SECONDS = 90;
/** Short, so that leases end within a run. */
const LEASE_MS = 6_000;
/** A silent node counts as lost after one of these shares of a lease. */
const LOST_SHARES = [0.4, 0.7];
/** The mean time between two submissions for each worker. */
const MEAN_GAP_US = 4_000_000;
/** A run of this length in true time is stuck. */
const STUCK_MS = 600_000;

/** Runs one seed: whole masters and workers over simulated network, time and disks. */
export async function simulateCluster(run: ClusterRun): Promise<ClusterResult> {
  const folder = mkdtempSync(join(tmpdir(), "heddle-simulation-"));
  const simulation = new ClusterSimulation(run, folder);
  const unwatch = simulation.watchRaft();
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
  readonly #members: MemberWorld;
  readonly #clients: JobClients;
  readonly #faults: ClusterFaults;
  readonly #hash = createHash("sha256");
  #isOver = false;
  #changes = 0;
  #changedUs = 0;

  constructor(run: ClusterRun, folder: string) {
    this.#run = run;
    const { seed, onTrace } = run;
    const dice = new Dice(seed, "cluster");
    const queue = new EventQueue();
    const network = new Network(queue, new Dice(seed, "connections"));
    const checker = new Checker();
    const trace = (text: () => string) => {
      const line = `${(queue.nowUs / 1000).toFixed(2)} ms  ${text()}`;
      this.#hash.update(line);
      onTrace?.(line);
    };
    this.#world = { seed, queue, network, checker, machines: new Map(), trace };
    enterWorld(this.#world);
    this.#members = this.#newMembers(dice);
    const clock = (): MachineClock => ({
      rate: dice.pick([0.98, 1, 1, 1.02]),
      offsetMs: dice.pick([0, 0, -2_000, 5_000]),
    });
    const nodeLostMs = LEASE_MS * dice.pick(LOST_SHARES);
    const settings = () => ({ directory: folder, clock: clock(), leaseMs: LEASE_MS, nodeLostMs });
    this.#masters = [...this.#members.members.values()].map(
      (member) => new SimulatedMaster(this.#world, member, settings()),
    );
    const addresses = this.#masters.map(({ name }) => `${name}:${MASTER_PORT}`);
    this.#workers = Array.from({ length: run.faults ? 4 : dice.whole(1, 5) }, (_, at) => {
      const name = `w${at + 1}`;
      const directory = join(folder, name);
      mkdirSync(directory);
      const machine = new WorkerMachine(this.#world, name, directory, clock());
      this.#world.machines.set(name, machine);
      return new WorkerInSimulation(this.#world, machine, addresses);
    });
    this.#clients = new JobClients(this.#world, this.#masters, MEAN_GAP_US / this.#workers.length);
    this.#faults = new ClusterFaults(this.#world, {
      masters: this.#masters,
      workers: this.#workers,
      raft: this.#members.network,
      chosen: run.faults,
    });
  }

  /** The Raft core's own invariants, as in the simulation of members alone. */
  watchRaft(): () => void {
    const { checker } = this.#members;
    return watchCores({
      ready: (id, raw, ready) => checker.ready(id, raw, ready),
      received: () => undefined,
      asked: () => undefined,
    });
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
      for (const { member } of this.#masters) member.start();
      await queue.run(() => hasEnded() || this.#leader() !== undefined);
      this.#leader()?.process?.run(() => void this.#leader()?.plane?.raiseVersion());
      for (const worker of this.#workers) worker.start();
      this.#clients.start();
      this.#faults.start();
      const endUs = queue.nowUs + seconds * 1_000_000;
      await queue.run(() => hasEnded() || queue.nowUs >= endUs);
      this.#clients.stop();
      this.#faults.endAll();
      this.#isOver = true;
      const healUs = queue.nowUs + HEAL_SECONDS * 1_000_000;
      await queue.run(
        () => hasEnded() || this.#allEnded() || this.#isStill() || queue.nowUs >= healUs,
      );
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
      for (const { process: each } of this.#workers) each?.end();
    }
    return {
      seed,
      violation: this.#violation,
      events: queue.count,
      accepted: this.#clients.accepted.size,
      starts: checker.starts,
      faults: this.#faults.counts,
      fingerprint: this.#hash.copy().digest("hex"),
    };
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
  }

  /** Any master gives the logs of all jobs. */
  async #checkLogs(hasEnded: () => boolean): Promise<void> {
    const { queue, checker } = this.#world;
    const master = this.#masters.find(({ plane }) => plane);
    const state = master?.plane?.state;
    if (!master || !state) return;
    let isDone = false;
    const check = async () => {
      for (const id of this.#clients.accepted) {
        const job = state.jobs.get(id);
        const logs = await master.logsOf(id);
        for (const [key, text] of logs) {
          const isLast = key.startsWith(`${id}/${job?.attempt}/`);
          checker.checkLog(key, text, isLast && job?.state === "succeeded");
        }
        const tasks = [...checker.tasks.values()].filter(
          ({ id: task }) => task.jobId === id && task.attempt === job?.attempt,
        );
        if (job?.state !== "succeeded") continue;
        for (const { key } of tasks) checker.checkLog(key, logs.get(key) ?? "", true);
      }
      isDone = true;
    };
    master.process
      ?.run(check)
      .catch((error: Error) =>
        checker.demand(false, "logs can be read", () => error.stack ?? error.message),
      );
    await queue.run(() => isDone || hasEnded());
  }

  #newMembers(dice: Dice): MemberWorld {
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
      bug: undefined,
      settings: {
        tickUs: 50_000,
        electionTicks: dice.whole(5, 12),
        requestTicks: 60,
        snapshotEntries: dice.pick([50, 400]),
        trailingEntries: 20,
        segmentBytes: 256 * 1024,
      },
      isOver: () => this.#isOver,
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
