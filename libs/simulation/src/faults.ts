import { decodeWalRecord } from "@heddle/storage/wal-record";
import { Dice } from "./dice.ts";
import type { Operator } from "./operator.ts";
import type { SimulatedMember, World } from "./simulated-member.ts";

/** Every kind of fault; a run draws which ones it has and their rates. */
export const FAULTS = [
  "loss",
  "duplication",
  "delay",
  "clogs",
  "partitions",
  "crashes",
  "pauses",
  "skew",
  "bitFlips",
  "misdirections",
  "diskErrors",
  "slowDisks",
  "membership",
  "snapshots",
  "transfers",
  "splits",
] as const;
export type InjectedFault = (typeof FAULTS)[number];

/** Faults that affect one member at one time, with their relative frequency. */
const EVENTS: Readonly<Partial<Record<InjectedFault, number>>> = {
  clogs: 2,
  partitions: 4,
  crashes: 4,
  pauses: 2,
  bitFlips: 2,
  misdirections: 2,
  diskErrors: 1,
  membership: 2,
  snapshots: 2,
  transfers: 2,
  splits: 3,
};

const SIZES = [1, 3, 5];
/** The longest delay of answers before a split in one direction starts. */
const MAX_LEAD_US = 50_000;
/** The longest split: several election timeouts. */
const MAX_SPLIT_US = 800_000;

/** Injects faults that are drawn from the seed, until it is stopped. */
export class Faults {
  readonly active: readonly InjectedFault[];
  /** The number of events of each kind. */
  readonly counts = new Map<InjectedFault, number>();
  readonly #world: World;
  readonly #operator: Operator;
  readonly #dice: Dice;
  readonly #meanGapUs: number;
  readonly #events: readonly InjectedFault[];
  #isEnded = false;
  #isSplit = false;

  /** `isCertain`: all allowed faults happen, in place of those that the seed draws. */
  constructor(
    world: World,
    operator: Operator,
    allowed: readonly InjectedFault[],
    isCertain = false,
  ) {
    this.#world = world;
    this.#operator = operator;
    this.#dice = new Dice(world.seed, "faults");
    // Drawn for all kinds, allowed or not, so that excluding one does not change the others.
    const drawn = FAULTS.filter(() => this.#dice.chance(0.6));
    this.active = (isCertain ? FAULTS : drawn).filter((fault) => allowed.includes(fault));
    this.#events = this.active.flatMap((fault) => Array(EVENTS[fault] ?? 0).fill(fault));
    this.#meanGapUs = this.#dice.between(20_000, 200_000);
    this.#setFaultRates();
  }

  #has(fault: InjectedFault): boolean {
    return this.active.includes(fault);
  }

  #setFaultRates(): void {
    const { network } = this.#world;
    if (this.#has("loss")) network.faults.loss = this.#dice.random() * 0.3;
    if (this.#has("duplication")) network.faults.duplication = this.#dice.random() * 0.5;
    network.faults.maxDelayUs = this.#has("delay") ? this.#dice.between(5_000, 150_000) : 3000;
  }

  start(): void {
    this.#world.queue.after(-Math.log(1 - this.#dice.random()) * this.#meanGapUs, () => {
      if (this.#isEnded) return;
      const fault = this.#dice.pickIf(this.#events);
      if (fault && this.#happen(fault)) {
        this.counts.set(fault, (this.counts.get(fault) ?? 0) + 1);
      }
      this.start();
    });
  }

  /** Sets a machine's clock rate and disk faults until its next start. */
  equip(member: SimulatedMember): void {
    if (this.#isEnded) return;
    member.clockRate = this.#clockRate();
    member.maxDiskUs = this.#has("slowDisks") ? this.#dice.pick([1000, 10_000, 100_000]) : 1000;
  }

  /** The speed of a machine's clock, as a multiple of a tick's length. */
  #clockRate(): number {
    return this.#has("skew") ? this.#dice.pick([0.5, 0.8, 1, 1, 1.25, 2, 3]) : 1;
  }

  /** Ends all faults and repairs their effects. */
  endAll(): void {
    const { network, members } = this.#world;
    this.#isEnded = true;
    network.mend();
    Object.assign(network.faults, { loss: 0, duplication: 0, maxDelayUs: 3000 });
    for (const member of members.values()) {
      // It crashes now and not after the group has healed.
      if (member.disk.faults.misdirections > 0) member.crash();
      Object.assign(member.disk.faults, { failures: 0, misdirections: 0 });
      member.clockRate = 1;
      member.maxDiskUs = 1000;
      member.wake();
      if (member.state === "down") member.start();
    }
  }

  #happen(fault: InjectedFault): boolean {
    const member = this.#pickMember();
    switch (fault) {
      case "clogs":
        return this.#clog(member);
      case "partitions":
        return this.#partition(member);
      case "splits":
        return this.#split(this.#operator.leader()?.member ?? member);
      case "crashes":
        return this.#crash(member);
      case "pauses":
        return this.#pause(member);
      case "bitFlips":
        return this.#flipBit(member);
      case "misdirections":
        return this.#misdirect(member);
      case "diskErrors":
        return this.#failDisk(member);
      case "membership":
        return this.#resize();
      case "snapshots":
        return this.#snapshot(member);
      case "transfers":
        return this.#transfer(member);
      default:
        return false;
    }
  }

  /** A leader is hit more often than the others. */
  #pickMember(): SimulatedMember {
    const leader = this.#dice.chance(0.5) ? this.#operator.leader()?.member : undefined;
    return leader ?? this.#dice.pick([...this.#world.members.values()]);
  }

  /** Mostly short faults, and some of several election timeouts. */
  #durationUs(): number {
    return this.#dice.pick([20_000, 1_000_000]) * this.#dice.random() + 10_000;
  }

  #others(member: SimulatedMember): SimulatedMember[] {
    return [...this.#world.members.values()].filter((other) => other !== member);
  }

  #clog(member: SimulatedMember): boolean {
    const { network, queue } = this.#world;
    const until = queue.nowUs + this.#durationUs();
    const others = this.#dice.chance(0.5) ? this.#others(member) : this.#others(member).slice(0, 1);
    for (const { id } of others) network.clog(member.id, id, until);
    return true;
  }

  /** Isolates a member for a time, in both directions or in one, or cuts one link. */
  #partition(member: SimulatedMember): boolean {
    const { network, queue, trace } = this.#world;
    const others = this.#others(member);
    const kind = this.#dice.whole(0, 5);
    const cut = kind === 4 ? others.slice(0, 1) : others.filter(() => this.#dice.chance(0.9));
    const setLinks = (isCut: boolean) => {
      for (const { id } of cut) {
        if (kind !== 1) network.setCut(member.id, id, isCut);
        if (kind !== 2 && kind !== 4) network.setCut(id, member.id, isCut);
      }
    };
    setLinks(true);
    trace(() => `cut ${member.id} ${["<>", "<", ">", "<>", ">"][kind]} ${cut.map(({ id }) => id)}`);
    queue.after(this.#durationUs(), () => setLinks(false));
    return cut.length > 0;
  }

  /**
   * Separates a member and some others from a majority: an isolated leader continues with them for
   * a time.
   */
  #split(member: SimulatedMember): boolean {
    const { network, queue, trace } = this.#world;
    const others = this.#others(member).filter(({ isUp }) => isUp);
    // The end of one split would end another one early.
    if (this.#isSplit || others.length === 0) return false;
    this.#isSplit = true;
    const kept = Math.floor((others.length - 1) / 2);
    const from = this.#dice.whole(0, Math.max(1, others.length));
    const inside = [...others, ...others].slice(from, from + Math.max(0, kept));
    const cut = others.filter((other) => !inside.includes(other));
    const durationUs = MAX_SPLIT_US * this.#dice.between(0.1, 1);
    // In a split of one direction, earlier answers still arrive late.
    const isOneWay = this.#dice.chance(0.5);
    const leadUs = isOneWay ? MAX_LEAD_US * this.#dice.random() : 0;
    const lateUntil = queue.nowUs + leadUs + durationUs * this.#dice.between(0.2, 1);
    // A leader detects late that it is isolated.
    const { clockRate } = member;
    if (this.#has("skew") && this.#dice.chance(0.5)) member.clockRate = 3;
    const links = [member, ...inside].flatMap(({ id }) =>
      cut.map((other) => [id, other.id] as const),
    );
    const setCut = (isCut: boolean) => {
      for (const [from, to] of links) {
        network.setCut(from, to, isCut);
        if (!isOneWay) network.setCut(to, from, isCut);
      }
    };
    if (isOneWay) for (const [to, from] of links) network.clog(from, to, lateUntil);
    queue.after(leadUs, () => {
      if (this.#isEnded) return;
      trace(
        () => `split ${[member, ...inside].map(({ id }) => id)} from ${cut.map(({ id }) => id)}`,
      );
      setCut(true);
      queue.after(durationUs, () => {
        setCut(false);
        this.#isSplit = false;
        if (!this.#isEnded) member.clockRate = clockRate;
        if (isOneWay) for (const [to, from] of links) network.clog(from, to, 0);
      });
    });
    return cut.length > 0;
  }

  #crash(member: SimulatedMember): boolean {
    if (!member.isUp && member.state !== "starting") return false;
    // At times all members lose power.
    const crashed = this.#dice.chance(0.1) ? [...this.#world.members.values()] : [member];
    for (const one of crashed) {
      one.crash();
      this.#restartLater(one);
    }
    return true;
  }

  #restartLater(member: SimulatedMember): void {
    this.#world.queue.after(this.#durationUs(), () => {
      this.equip(member);
      member.start();
      if (member.state === "down") this.#restartLater(member);
    });
  }

  #pause(member: SimulatedMember): boolean {
    if (member.state !== "running") return false;
    member.pause();
    this.#world.queue.after(this.#durationUs(), () => member.wake());
    return true;
  }

  /** True while a member, running or down, will be refused at its next start. */
  get #hasBadDisk(): boolean {
    return [...this.#world.members.values()].some(
      ({ state, isDamaged }) => isDamaged && state !== "lost" && state !== "gone",
    );
  }

  /**
   * True if a member's disk may fail. The others then hold all committed entries without it, and a
   * majority knows the voters, as each member applies a change of the members itself.
   */
  #mayLose(member: SimulatedMember): boolean {
    const { checker } = this.#world;
    if (!this.#operator.isStill || !member.isUp) return false;
    const present = this.#operator.present;
    if (this.#hasBadDisk) return false;
    const voters = votersOf(this.#operator.leader()?.member);
    const holders = present.filter((other) => {
      const { shadow } = checker.member(other.id);
      const isWhole = shadow.log.lastIndex >= checker.maxCommitted;
      return other !== member && other.isUp && isWhole && votersOf(other) === voters;
    });
    return holders.length > present.length / 2;
  }

  /** Flips a bit outside the log's last group, in which such damage looks like a torn write. */
  #flipBit(member: SimulatedMember): boolean {
    if (!this.#mayLose(member)) return false;
    const snapshot = this.#dice.pickIf(
      member.disk.paths().filter((path) => path.endsWith(".snap")),
    );
    if (snapshot && this.#dice.chance(0.3)) {
      member.isDamaged = true;
      this.#damage(member, snapshot, this.#dice.whole(0, member.disk.content(snapshot).length));
      return true;
    }
    const path = this.#dice.pickIf(member.walPaths());
    const end = path ? lastGroupStart(member.disk.content(path)) : 0;
    if (!path || end < 64) return false;
    member.isDamaged = true;
    this.#damage(member, path, this.#dice.whole(0, end));
    member.crash();
    this.#restartLater(member);
    return true;
  }

  #damage(member: SimulatedMember, path: string, byte: number): void {
    this.#world.trace(() => `a bit flips on member ${member.id}: byte ${byte} of ${path}`);
    member.disk.flipBit(path, byte, this.#dice.whole(0, 8));
  }

  #misdirect(member: SimulatedMember): boolean {
    if (!this.#mayLose(member)) return false;
    member.isDamaged = true;
    member.disk.faults.misdirections = 0.2;
    this.#world.trace(() => `writes of member ${member.id} are misdirected`);
    this.#world.queue.after(50_000, () => {
      if (this.#isEnded) return;
      member.disk.faults.misdirections = 0;
      member.crash();
      this.#restartLater(member);
    });
    return true;
  }

  #failDisk(member: SimulatedMember): boolean {
    member.disk.faults.failures = 0.2;
    this.#world.trace(() => `the disk of member ${member.id} fails at times`);
    this.#world.queue.after(100_000, () => {
      member.disk.faults.failures = 0;
      // A member that a missing disk stopped is restarted.
      if (member.state === "down") this.#restartLater(member);
    });
    return true;
  }

  /** A group that shrinks to the member with the bad disk rightly loses its majority. */
  #resize(): boolean {
    if (this.#hasBadDisk) return false;
    this.#operator.wanted = this.#dice.pick(SIZES);
    this.#world.trace(() => `the operator wants ${this.#operator.wanted} voters`);
    return true;
  }

  #snapshot(member: SimulatedMember): boolean {
    if (member.state !== "running") return false;
    void member.replica?.takeSnapshot();
    return true;
  }

  #transfer(member: SimulatedMember): boolean {
    const leader = this.#operator.leader();
    if (!leader) return false;
    this.#world.trace(() => `leadership shall go from ${leader.member.id} to ${member.id}`);
    leader.member.replica?.transferLeadership(member.id);
    return true;
  }
}

/** The start of the last group of a segment. */
function lastGroupStart(bytes: Buffer): number {
  let offset = 0;
  let start = 0;
  let group = -1;
  for (;;) {
    const record = decodeWalRecord(bytes, offset);
    // Records of the file's use as an earlier segment have lower groups.
    if (!record || record.group < group) return start;
    if (record.group !== group) start = offset;
    group = record.group;
    offset += record.stride;
  }
}

/** The voters, as of the last change that a member has applied. */
function votersOf(member: SimulatedMember | undefined): string {
  const members = member?.replica?.status().members ?? [];
  return members.map(({ id, votes }) => `${id}${votes}`).join();
}
