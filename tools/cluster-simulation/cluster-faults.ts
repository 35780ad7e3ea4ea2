import { Dice } from "@heddle/simulation/dice";
import type { SimulatedNetwork } from "@heddle/simulation/simulated-network";
import type { SimulatedMaster } from "./master.ts";
import type { NodeInSimulation } from "./nodes/node-in-simulation.ts";
import type { ServerInSimulation } from "./nodes/parameter-server.ts";
import type { WorkerInSimulation } from "./nodes/worker.ts";
import type { ClusterWorld } from "./world.ts";

/** Every kind of fault of the whole cluster; a run draws which ones it has. */
export const CLUSTER_FAULTS = [
  "masterCrash",
  "workerCrash",
  "workerReboot",
  "workerLoss",
  "workerPause",
  "masterPause",
  "cutWorker",
  "cutWorkerFromOneMaster",
  "cutMaster",
  "cutOneWay",
  "failingLink",
  "slowNetwork",
  "lossyNetwork",
  "clockJump",
  "slowDisk",
  "fullDisk",
  "damagedSnapshot",
  "transfer",
  "serverCrash",
  "serverDiskLoss",
  "serverPause",
  "cutServer",
  "resetConnections",
  "programCrash",
] as const;
export type ClusterFault = (typeof CLUSTER_FAULTS)[number];

/** The longest fault: longer than a lease. */
const MAX_FAULT_US = 25_000_000;
/** The mean time between two faults. */
const MIN_GAP_US = 2_000_000;
const MAX_GAP_US = 10_000_000;
/** The additional delay of messages on a link that is about to fail. */
const MAX_LATE_US = 3_000_000;
/** The longest time between two resets of a link that resets its connections. */
const MAX_RESET_US = 300_000;
/** Changes of a clock: longer than a lease, and than a whole run. */
const JUMPS_MS = [-3_600_000, -20_000, 20_000, 3_600_000];

/** The delays and disks of a cluster without faults. */
export const CALM = { networkUs: 2_000, raftUs: 1_000, fileUs: 2_000, memberUs: 1_000 };
const SLOW = { networkUs: 400_000, raftUs: 150_000, fileUs: 200_000, memberUs: 100_000 };

/** What one fault hits, and for how long. */
interface Hit {
  readonly master: SimulatedMaster;
  readonly worker: WorkerInSimulation;
  readonly server: ServerInSimulation | undefined;
  readonly forUs: number;
  readonly later: (work: () => void) => void;
}

/** Injects faults into masters, workers and the network between them. */
export class ClusterFaults {
  readonly counts = new Map<string, number>();
  readonly #world: ClusterWorld;
  readonly #masters: readonly SimulatedMaster[];
  readonly #workers: readonly WorkerInSimulation[];
  readonly #servers: readonly ServerInSimulation[];
  readonly #raft: SimulatedNetwork;
  readonly #dice: Dice;
  readonly #active: readonly ClusterFault[];
  readonly #meanGapUs: number;
  #hasDamaged = false;
  #isEnded = false;

  constructor(
    world: ClusterWorld,
    cluster: {
      readonly masters: readonly SimulatedMaster[];
      readonly workers: readonly WorkerInSimulation[];
      readonly servers: readonly ServerInSimulation[];
      /** Between the masters. */
      readonly raft: SimulatedNetwork;
      /** These happen, and often, in place of those that the seed draws. */
      readonly chosen: readonly ClusterFault[] | undefined;
      /** These do not happen. */
      readonly excluded: readonly ClusterFault[];
    },
  ) {
    this.#world = world;
    this.#masters = cluster.masters;
    this.#workers = cluster.workers;
    this.#servers = cluster.servers;
    this.#raft = cluster.raft;
    const { chosen, excluded } = cluster;
    this.#dice = new Dice(world.seed, "cluster faults");
    const drawn = CLUSTER_FAULTS.filter(() => this.#dice.chance(0.5));
    this.#active = chosen ?? drawn.filter((fault) => !excluded.includes(fault));
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
    this.#world.network.maxDelayUs = CALM.networkUs;
    this.#raft.mend();
    this.#loseMessages(false);
    for (const { member, disk } of this.#masters) {
      Object.assign(disk, { maxUs: CALM.fileUs, isFull: false });
      member.disk.faults.failures = 0;
      member.maxDiskUs = CALM.memberUs;
      member.wake();
      member.start();
    }
    for (const node of [...this.#workers, ...this.#servers]) {
      Object.assign(node.machine.disk, { maxUs: CALM.fileUs, isFull: false });
      node.process?.resume();
      node.start();
    }
  }

  #happen(fault: ClusterFault): void {
    const master = this.#dice.pick(this.#masters);
    const worker = this.#dice.pick(this.#workers);
    const server = this.#dice.pickIf(this.#servers);
    const forUs = this.#dice.between(100_000, this.#dice.pick([2_000_000, MAX_FAULT_US]));
    const later = (work: () => void) => this.#world.queue.after(forUs, work);
    this.#world.trace(
      () =>
        `fault: ${fault} ${master.name} ${worker.machine.name} ${server?.machine.name ?? ""} for ${Math.round(forUs / 1000)} ms`,
    );
    this.#faults[fault]({ master, worker, server, forUs, later });
  }

  readonly #faults: Readonly<Record<ClusterFault, (hit: Hit) => void>> = {
    masterCrash: ({ master: { member }, later }) => {
      member.crash();
      later(() => member.start());
    },
    masterPause: ({ master: { member }, later }) => {
      member.pause();
      later(() => member.wake());
    },
    workerCrash: ({ worker, later }) => {
      worker.kill();
      later(() => worker.start());
    },
    workerReboot: ({ worker, later }) => {
      worker.kill();
      worker.machine.reboot();
      later(() => worker.start());
    },
    workerLoss: ({ worker }) => this.#loseMachine(worker),
    workerPause: ({ worker, later }) => this.#pause(worker, later),
    cutWorker: ({ worker, forUs }) => {
      for (const { name } of this.#masters)
        this.#world.network.cut(worker.machine.name, name, forUs);
    },
    cutWorkerFromOneMaster: ({ master, worker, forUs }) =>
      this.#world.network.cut(worker.machine.name, master.name, forUs),
    cutMaster: ({ master, forUs }) => this.#cutMaster(master, forUs),
    cutOneWay: ({ master, worker, forUs }) => this.#cutOneWay(master, worker, forUs),
    failingLink: ({ worker }) => this.#failLink(worker),
    slowNetwork: ({ later }) => {
      this.#world.network.maxDelayUs = SLOW.networkUs;
      later(() => {
        this.#world.network.maxDelayUs = CALM.networkUs;
      });
    },
    lossyNetwork: ({ later }) => {
      this.#loseMessages(true);
      later(() => this.#loseMessages(false));
    },
    clockJump: ({ worker }) => this.#setClock(worker),
    slowDisk: (hit) => {
      this.#slowDisks(hit, SLOW);
      hit.later(() => this.#slowDisks(hit, CALM));
    },
    fullDisk: ({ master, worker, server, later }) => {
      if (server && this.#dice.chance(0.5)) this.#fillNode(server, later);
      else if (this.#dice.chance(0.5)) this.#fillNode(worker, later);
      else this.#fillMaster(master, later);
    },
    damagedSnapshot: ({ master, later }) => this.#damageSnapshot(master, later),
    transfer: ({ master }) => {
      this.#leader()?.member.replica?.transferLeadership(master.member.id);
    },
    serverCrash: ({ server, later }) => {
      server?.kill();
      later(() => server?.start());
    },
    serverDiskLoss: ({ server, later }) => {
      server?.loseDisk();
      later(() => server?.start());
    },
    serverPause: ({ server, later }) => server && this.#pause(server, later),
    cutServer: ({ server, forUs }) => server && this.#cutServer(server, forUs),
    resetConnections: ({ master, worker, server, forUs }) => {
      const other = server?.machine.name ?? master.name;
      this.#reset(worker.machine.name, other, this.#world.queue.nowUs + forUs);
    },
    programCrash: ({ worker: { machine } }) => {
      const task = this.#dice.pickIf([...machine.tasks.values()].filter(({ end }) => !end));
      if (task) machine.kill(task.key, "SIGKILL");
    },
  };

  #leader(): SimulatedMaster | undefined {
    return this.#masters.find(({ member }) => member.replica?.status().isActiveLeader);
  }

  #pause({ process }: NodeInSimulation, later: Hit["later"]): void {
    if (!process?.isAlive || process.isPaused) return;
    process.pause();
    this.#world.network.paused(process);
    later(() => process.resume());
  }

  /** Breaks the connections of two machines again and again. */
  #reset(a: string, b: string, untilUs: number): void {
    const { network, queue } = this.#world;
    if (this.#isEnded || queue.nowUs > untilUs) return;
    network.reset(a, b);
    queue.after(this.#dice.between(0, MAX_RESET_US), () => this.#reset(a, b, untilUs));
  }

  /** Cuts the server from the masters, from a worker, from all of them, or from the other servers. */
  #cutServer(server: ServerInSimulation, forUs: number): void {
    const machines = (nodes: readonly NodeInSimulation[]) => nodes.map(({ machine }) => machine);
    const from = this.#dice.pick([
      this.#masters,
      machines([this.#dice.pick(this.#workers)]),
      machines(this.#workers),
      machines(this.#servers.filter((other) => other !== server)),
    ]);
    for (const { name } of from) this.#world.network.cut(server.machine.name, name, forUs);
  }

  /** Cuts the master from the other masters, and from some of the workers. */
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

  /** Between two masters, or a master and a worker: messages arrive in one direction alone. */
  #cutOneWay(master: SimulatedMaster, worker: WorkerInSimulation, forUs: number): void {
    const { network, queue } = this.#world;
    const other = this.#dice.pick(this.#masters);
    if (other === master) {
      const [from, to] = this.#dice.pick([
        [master.name, worker.machine.name],
        [worker.machine.name, master.name],
      ] as const);
      network.cutOneWay(from, to, forUs);
      return;
    }
    network.cutOneWay(master.name, other.name, forUs);
    this.#raft.setCut(master.member.id, other.member.id, true);
    queue.after(forUs, () => this.#raft.setCut(master.member.id, other.member.id, false));
  }

  /** Delays the messages between a worker and all masters in one direction, then cuts the link. */
  #failLink({ machine }: WorkerInSimulation): void {
    const { network, queue } = this.#world;
    const byUs = this.#dice.between(0, MAX_LATE_US);
    const cutUs = this.#dice.between(0, MAX_FAULT_US);
    const isToWorker = this.#dice.chance(0.5);
    for (const { name } of this.#masters) {
      const [from, to] = isToWorker ? [name, machine.name] : [machine.name, name];
      network.slowDown(from, to, byUs);
      queue.after(2 * byUs, () => {
        network.slowDown(from, to, 0);
        if (!this.#isEnded) network.cut(from, to, cutUs);
      });
    }
  }

  /** Only masters send each other messages that may be lost: connections repeat theirs. */
  #loseMessages(isLossy: boolean): void {
    Object.assign(this.#raft.faults, {
      loss: isLossy ? this.#dice.random() * 0.3 : 0,
      duplication: isLossy ? this.#dice.random() * 0.5 : 0,
      maxDelayUs: isLossy ? SLOW.raftUs : CALM.raftUs,
    });
  }

  /** Changes the clock of a worker, of the leader, or of all machines, as a wrong time server does. */
  #setClock({ machine }: WorkerInSimulation): void {
    const nodes = [...this.#workers, ...this.#servers].map((each) => each.machine);
    const all = [...this.#masters, ...nodes];
    const byMs = this.#dice.pick(JUMPS_MS);
    for (const { clock } of this.#dice.pick([[machine], [this.#leader() ?? machine], all])) {
      clock.offsetMs += byMs;
    }
  }

  /** Ends one worker permanently, at most once a run and never the only one. */
  #loseMachine(worker: WorkerInSimulation): void {
    if (this.#workers.length < 2 || this.#workers.some(({ isGone }) => isGone)) return;
    worker.isGone = true;
    worker.kill();
    worker.machine.reboot();
  }

  #slowDisks({ master, worker, server }: Hit, speed: typeof CALM): void {
    master.member.maxDiskUs = speed.memberUs;
    for (const { disk } of [master, worker.machine, server?.machine ?? worker.machine]) {
      disk.maxUs = speed.fileUs;
    }
  }

  #fillNode({ machine: { disk } }: NodeInSimulation, later: Hit["later"]): void {
    disk.isFull = true;
    later(() => {
      disk.isFull = false;
    });
  }

  /** Its log takes nothing, which ends it; it starts when there is room. */
  #fillMaster({ disk, member }: SimulatedMaster, later: Hit["later"]): void {
    disk.isFull = true;
    member.disk.faults.failures = 1;
    later(() => {
      disk.isFull = false;
      member.disk.faults.failures = 0;
      member.start();
    });
  }

  /** Damages the snapshot of one follower, which must not start on it; the others are a majority. */
  #damageSnapshot({ member }: SimulatedMaster, later: Hit["later"]): void {
    const path = this.#dice.pickIf(member.disk.paths().filter((name) => name.endsWith(".snap")));
    const isLeader = this.#leader()?.member === member;
    if (!path || this.#hasDamaged || isLeader || this.#masters.length < 3) return;
    this.#hasDamaged = true;
    member.isDamaged = true;
    const byte = this.#dice.whole(0, member.disk.content(path).length);
    member.disk.flipBit(path, byte, this.#dice.whole(0, 8));
    member.crash();
    later(() => member.start());
  }
}
