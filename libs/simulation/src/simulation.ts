import { Clients } from "./clients.ts";
import { watchCores } from "./core-watch.ts";
import { Dice } from "./dice.ts";
import { EventQueue } from "./event-queue.ts";
import { FAULTS, Faults, type InjectedFault } from "./faults.ts";
import { checkLinearizability } from "./linearizability.ts";
import { Operator } from "./operator.ts";
import { ReadChecker } from "./read-checker.ts";
import { ClusterSafetyChecker, type Violation } from "./safety-checker.ts";
import { plant, type SeededBug } from "./seeded-bug.ts";
import { type MemberSettings, SimulatedMember, type World } from "./simulated-member.ts";
import { SimulatedNetwork } from "./simulated-network.ts";

export interface SimulationOptions {
  readonly seed: number;
  /** Events until the faults end and the cluster must heal. */
  readonly events?: number | undefined;
  /** The kinds of fault that may happen; all by default. */
  readonly faults?: readonly InjectedFault[] | undefined;
  /** True if all of them happen, in place of those that the seed draws. */
  readonly isCertain?: boolean | undefined;
  readonly bug?: SeededBug | undefined;
  /** Receives the trace of the run, line by line. */
  readonly onTrace?: ((line: string) => void) | undefined;
}

export interface SimulationResult {
  readonly seed: number;
  readonly violation: Violation | undefined;
  readonly events: number;
  /**
   * Ticks from the end of the faults until there was a leader, and until all members were equal.
   */
  readonly leaderTicks: number;
  readonly healTicks: number;
  readonly answered: number;
  readonly committed: number;
  readonly changes: number;
  readonly faults: ReadonlyMap<InjectedFault, number>;
  /** A hash of all events: equal for runs of one seed. */
  readonly fingerprint: string;
}

const DEFAULT_EVENTS = 3000;
/** A leader must exist again within this many of the longest election timeouts. */
const LEADER_TIMEOUTS = 2;
/** Events between two checks whether the cluster has healed. */
const CHECK_INTERVAL_EVENTS = 16;
/** All members must be equal within this many ticks. */
const HEAL_TICKS = 600;

/**
 * Runs one seed: a cluster of real replicas over simulated disks, network and time, first with
 * faults and then without. One run at a time, since it watches the core's prototype.
 */
export async function simulate(options: SimulationOptions): Promise<SimulationResult> {
  const simulation = new Simulation(options);
  const { checker } = simulation.world;
  const reads = new ReadChecker((detail) =>
    checker.demand(false, "a quorum confirms a read after its arrival", () => detail),
  );
  const unwatch = watchCores({
    ready: (id, raw, ready) => {
      checker.ready(id, raw, ready);
      reads.ready(raw, ready);
    },
    received: (raw, message) => reads.received(raw, message),
    asked: (raw, context) => reads.asked(raw, context),
  });
  const uproot = plant(options.bug);
  try {
    return await simulation.run();
  } catch (cause) {
    // The checkers report violations; any other error must name its seed too.
    throw new Error(`seed ${options.seed} cannot be run to its end: ${cause}`, { cause });
  } finally {
    uproot();
    unwatch();
  }
}

class Simulation {
  readonly world: World;
  readonly #options: SimulationOptions;
  readonly #operator: Operator;
  readonly #faults: Faults;
  readonly #clients: Clients;
  #isEnded = false;

  constructor(options: SimulationOptions) {
    this.#options = options;
    const { seed, bug, onTrace } = options;
    const dice = new Dice(seed, "simulation");
    const queue = new EventQueue();
    const checker = new ClusterSafetyChecker();
    const members = new Map<number, SimulatedMember>();
    const network = new SimulatedNetwork(queue, new Dice(seed, "network"), (message) =>
      members.get(message.to)?.deliver(message),
    );
    const trace = onTrace
      ? (text: () => string) => onTrace(`${(queue.nowUs / 1000).toFixed(2)} ms  ${text()}`)
      : () => undefined;
    const isEnded = () => this.#isEnded;
    const settings = drawSettings(dice);
    this.world = { seed, queue, network, checker, settings, bug, members, isEnded, trace };
    const size = dice.pick([1, 3, 3, 3, 5, 5]);
    this.#operator = new Operator(this.world, size);
    this.#faults = new Faults(
      this.world,
      this.#operator,
      options.faults ?? FAULTS,
      options.isCertain,
    );
    this.#clients = new Clients(this.world, dice.whole(3, 9));
    this.#createMembers(size);
  }

  #createMembers(size: number): void {
    const first = Array.from({ length: size }, (_, i) => {
      const name = `m${i + 1}`;
      return { id: i + 1, name, address: `${name}:1`, nonce: `first-${i + 1}` };
    });
    for (const member of first) {
      const created = new SimulatedMember(this.world, member, first);
      this.#faults.equip(created);
      this.world.members.set(member.id, created);
    }
  }

  async run(): Promise<SimulationResult> {
    const { queue, checker, members } = this.world;
    for (const member of members.values()) member.start();
    this.#operator.start();
    this.#clients.start();
    this.#faults.start();
    const end = this.#options.events ?? DEFAULT_EVENTS;
    await queue.run(() => queue.count >= end || checker.violation !== undefined);
    const { leaderTicks, healTicks } = await this.#heal();
    if (!checker.violation) this.#judge();
    return {
      seed: this.#options.seed,
      violation: checker.violation,
      events: queue.count,
      leaderTicks,
      healTicks,
      answered: this.#clients.answered,
      committed: checker.maxCommitted,
      changes: this.#operator.changes,
      faults: this.#faults.counts,
      fingerprint: this.#fingerprint(),
    };
  }

  /** Ends all faults; then a leader, and equal members, must follow within their bounds. */
  async #heal(): Promise<{ leaderTicks: number; healTicks: number }> {
    const { queue, checker, settings, trace } = this.world;
    let startUs = queue.nowUs;
    const ticks = () => (queue.nowUs - startUs) / settings.tickUs;
    this.#isEnded = true;
    this.#faults.endAll();
    this.#clients.stop();
    trace(() => "all faults end");
    const leaderTicksMax = LEADER_TIMEOUTS * 2 * settings.electionTicks;
    await this.#until(() => this.#allRun() || ticks() > HEAL_TICKS);
    startUs = queue.nowUs;
    await this.#until(() => this.#hasLeader() || ticks() > leaderTicksMax);
    const leaderTicks = ticks();
    checker.demand(
      this.#hasLeader(),
      "a leader within two election timeouts after all faults ended",
      () => `there was none after ${leaderTicks.toFixed(1)} ticks; ${this.#describe()}`,
    );
    await this.#until(() => this.#isHealed() || ticks() > HEAL_TICKS);
    checker.demand(this.#isHealed(), "all members are equal after all faults ended", () =>
      this.#describe(),
    );
    if (!checker.violation) await this.#readAll();
    return { leaderTicks, healTicks: ticks() };
  }

  async #readAll(): Promise<void> {
    const { queue, checker } = this.world;
    let isDone = false;
    let failure: unknown;
    this.#clients.readAll().then(
      () => (isDone = true),
      (error: unknown) => (failure = error),
    );
    const end = queue.count + 5000;
    await queue.run(() => isDone || failure !== undefined || queue.count > end);
    checker.demand(isDone, "every member serves reads after all faults ended", () => `${failure}`);
  }

  /** Checks only every CHECK_INTERVAL_EVENTS events, as a check takes longer than most events. */
  #until(condition: () => boolean): Promise<void> {
    const { queue, checker } = this.world;
    return queue.run(
      () =>
        checker.violation !== undefined ||
        (queue.count % CHECK_INTERVAL_EVENTS === 0 && condition()),
    );
  }

  #allRun(): boolean {
    return this.#operator.present.every(({ state }) => state === "running");
  }

  #hasLeader(): boolean {
    return this.#operator.leader() !== undefined;
  }

  #isHealed(): boolean {
    if (!this.#operator.isSettled || !this.#clients.isIdle) return false;
    const leader = this.#operator.leader();
    return this.#operator.present.every(({ state, replica, machine }) => {
      const status = replica?.status();
      return (
        state === "running" &&
        status?.commit === leader?.status.commit &&
        status?.applied === leader?.status.commit &&
        machine.control.hash === leader?.member.machine.control.hash
      );
    });
  }

  #describe(): string {
    const lines = [...this.world.members.values()].map((member) => {
      const status = member.replica?.status();
      const { state, machine } = member;
      if (!status) return `member ${member.id}: ${state}`;
      const { role, term, commit, applied, snapshotIndex, members } = status;
      const known = members.map(({ id, votes }) => `${id}${votes ? "" : "*"}`);
      return `member ${member.id}: ${state} ${role} term ${term} commit ${commit} applied ${applied} snapshot ${snapshotIndex} of ${known} hash ${machine.control.hash}`;
    });
    return `wanted ${this.#operator.wanted} voters; ${lines.join("; ")}`;
  }

  #judge(): void {
    const verdict = checkLinearizability(this.#clients.history);
    this.world.checker.demand(
      verdict.result === "linearizable",
      "client histories are linearizable",
      () => (verdict.result === "violation" ? verdict.text : JSON.stringify(verdict)),
    );
  }

  #fingerprint(): string {
    const { queue, checker, members } = this.world;
    const hashes = [...members.values()].map(({ machine }) => machine.control.hash);
    return [queue.count, queue.nowUs, checker.maxCommitted, ...hashes].join("/");
  }
}

function drawSettings(dice: Dice): MemberSettings {
  return {
    tickUs: 10_000,
    electionTicks: dice.pick([6, 10, 10]),
    requestTicks: dice.pick([20, 40]),
    snapshotEntries: dice.pick([10, 30, 200]),
    trailingEntries: dice.pick([0, 5, 50]),
    segmentBytes: dice.pick([1024, 4096, 16_384]),
  };
}
