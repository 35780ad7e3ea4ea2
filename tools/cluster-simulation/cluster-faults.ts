import { Dice } from "@heddle/simulation/dice";
import type { SimulatedNetwork } from "@heddle/simulation/simulated-network";
import type { SimulatedMaster } from "./master.ts";
import type { WorkerInSimulation } from "./worker.ts";
import type { ClusterWorld } from "./world.ts";

/** Every kind of fault of the whole cluster; a run draws which ones it has. */
export const CLUSTER_FAULTS = [
  "masterCrash",
  "workerCrash",
  "workerPause",
  "masterPause",
  "cutWorker",
  "cutWorkerFromOneMaster",
  "cutMaster",
  "slowNetwork",
  "clockJump",
] as const;
export type ClusterFault = (typeof CLUSTER_FAULTS)[number];

/** The longest fault: longer than a lease. */
const MAX_FAULT_US = 25_000_000;
/** The mean time between two faults. */
const MIN_GAP_US = 2_000_000;
const MAX_GAP_US = 10_000_000;
/** What a clock is set by: longer than a lease, and than a whole run. */
const JUMPS_MS = [-3_600_000, -20_000, 20_000, 3_600_000];

/** Injects faults into masters, workers and the network between them. */
export class ClusterFaults {
  readonly counts = new Map<string, number>();
  readonly #world: ClusterWorld;
  readonly #masters: readonly SimulatedMaster[];
  readonly #workers: readonly WorkerInSimulation[];
  readonly #raft: SimulatedNetwork;
  readonly #dice: Dice;
  readonly #active: readonly ClusterFault[];
  readonly #meanGapUs: number;
  #isEnded = false;

  constructor(
    world: ClusterWorld,
    cluster: {
      readonly masters: readonly SimulatedMaster[];
      readonly workers: readonly WorkerInSimulation[];
      /** Between the masters. */
      readonly raft: SimulatedNetwork;
      /** These happen, and often, in place of those that the seed draws. */
      readonly chosen: readonly ClusterFault[] | undefined;
    },
  ) {
    this.#world = world;
    this.#masters = cluster.masters;
    this.#workers = cluster.workers;
    this.#raft = cluster.raft;
    const { chosen } = cluster;
    this.#dice = new Dice(world.seed, "cluster faults");
    this.#active = chosen ?? CLUSTER_FAULTS.filter(() => this.#dice.chance(0.5));
    this.#meanGapUs = chosen ? MIN_GAP_US : this.#dice.between(MIN_GAP_US, MAX_GAP_US);
  }

  start(): void {
    this.#world.queue.after(-Math.log(1 - this.#dice.random()) * this.#meanGapUs, () => {
      if (this.#isEnded) return;
      const fault = this.#dice.pickIf(this.#active);
      if (fault) {
        this.#happen(fault);
        this.counts.set(fault, (this.counts.get(fault) ?? 0) + 1);
      }
      this.start();
    });
  }

  /** Ends all faults: what is down starts, what is paused continues. */
  endAll(): void {
    this.#isEnded = true;
    this.#world.network.mendAll();
    this.#world.network.maxDelayUs = 2_000;
    this.#raft.mend();
    for (const { member } of this.#masters) {
      member.wake();
      member.start();
    }
    for (const worker of this.#workers) {
      worker.process?.resume();
      worker.start();
    }
  }

  #happen(fault: ClusterFault): void {
    const master = this.#dice.pick(this.#masters);
    const worker = this.#dice.pick(this.#workers);
    const forUs = this.#dice.between(100_000, this.#dice.pick([2_000_000, MAX_FAULT_US]));
    const later = (work: () => void) => this.#world.queue.after(forUs, work);
    this.#world.trace(
      () =>
        `fault: ${fault} ${master.name} ${worker.machine.name} for ${Math.round(forUs / 1000)} ms`,
    );
    switch (fault) {
      case "masterCrash":
        master.member.crash();
        later(() => master.member.start());
        return;
      case "masterPause":
        master.member.pause();
        later(() => master.member.wake());
        return;
      case "workerCrash":
        worker.kill();
        later(() => worker.start());
        return;
      case "workerPause": {
        const { process } = worker;
        if (!process?.isAlive || process.isPaused) return;
        process.pause();
        this.#world.network.paused(process);
        later(() => process.resume());
        return;
      }
      case "cutWorker":
        for (const { name } of this.#masters)
          this.#world.network.cut(worker.machine.name, name, forUs);
        return;
      case "cutWorkerFromOneMaster":
        this.#world.network.cut(worker.machine.name, master.name, forUs);
        return;
      case "cutMaster":
        this.#cutMaster(master, forUs);
        return;
      case "slowNetwork":
        this.#world.network.maxDelayUs = 400_000;
        later(() => {
          this.#world.network.maxDelayUs = 2_000;
        });
        return;
      case "clockJump":
        this.#jump(worker);
        return;
    }
  }

  /** Of a worker, or of the leader, which alone decides. */
  #jump({ machine }: WorkerInSimulation): void {
    const leader = this.#masters.find(({ member }) => member.replica?.status().isActiveLeader);
    const { clock } = this.#dice.chance(0.3) || !leader ? machine : leader;
    clock.offsetMs += this.#dice.pick(JUMPS_MS);
  }

  /** From the other masters, and from some of the workers. */
  #cutMaster(master: SimulatedMaster, forUs: number): void {
    const { network, queue } = this.#world;
    const others = this.#masters.filter((other) => other !== master);
    const set = (isCut: boolean) => {
      for (const { member } of others) {
        this.#raft.setCut(member.id, master.member.id, isCut);
        this.#raft.setCut(master.member.id, member.id, isCut);
      }
    };
    set(true);
    queue.after(forUs, () => set(false));
    for (const { name } of others) network.cut(master.name, name, forUs);
    for (const { machine } of this.#workers) {
      if (this.#dice.chance(0.5)) network.cut(master.name, machine.name, forUs);
    }
  }
}
