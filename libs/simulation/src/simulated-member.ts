import { type AppError, toAppError } from "@heddle/base/errors";
import type { Member, OutgoingSnapshot, Transport } from "@heddle/consensus/ports";
import { RaftReplica } from "@heddle/consensus/replica/raft-replica";
import type { ControlReply } from "@heddle/control/command";
import type { ReplicatedControl } from "@heddle/control/replicated-control";
import type { Message } from "@heddle/raft/core/message";
import type { EntryId } from "@heddle/raft/log/entry";
import { Dice } from "./dice.ts";
import { DurableShadow, lowestTouched } from "./durable-shadow.ts";
import type { EventQueue } from "./event-queue.ts";
import type { ClusterSafetyChecker } from "./safety-checker.ts";
import type { SeededBug } from "./seeded-bug.ts";
import { SimulatedDisk } from "./simulated-disk.ts";
import { SimulatedMachine } from "./simulated-machine.ts";
import type { SimulatedNetwork } from "./simulated-network.ts";

/** The shared environment of all members of a run. */
export interface World {
  readonly seed: number;
  readonly queue: EventQueue;
  readonly network: SimulatedNetwork;
  readonly checker: ClusterSafetyChecker;
  readonly settings: MemberSettings;
  readonly bug: SeededBug | undefined;
  readonly members: Map<number, SimulatedMember>;
  /** True when no more faults happen and the cluster must heal. */
  readonly isEnded: () => boolean;
  /** Called with a member's state after each entry. */
  readonly watch?: ((control: ReplicatedControl) => void) | undefined;
  readonly trace: (text: () => string) => void;
}

/** Settings that are drawn once for a run. */
export interface MemberSettings {
  readonly tickUs: number;
  readonly electionTicks: number;
  readonly requestTicks: number;
  readonly snapshotEntries: number;
  readonly trailingEntries: number;
  readonly segmentBytes: number;
}

export type MemberState =
  | "down"
  | "starting"
  | "running"
  | "paused"
  /** Its log is damaged: it does not start any more, and another one replaces it. */
  | "lost"
  /** It was removed and its process ended. */
  | "gone";

/** Messages that wait for a paused process; more are lost. */
const MAX_UNREAD = 400;

/** A master's machine: its disk, its clock, and its process. */
export class SimulatedMember {
  readonly member: Member;
  readonly disk: SimulatedDisk;
  state: MemberState = "down";
  replica: RaftReplica<ControlReply> | undefined;
  machine: SimulatedMachine;
  /** The highest cluster version of its build, from the next start on; this one's if undefined. */
  newest: number | undefined;
  /** The length of this clock's ticks, as a multiple of a true clock's. */
  clockRate = 1;
  /** The longest disk operation; most are much shorter. */
  maxDiskUs = 1000;
  /** Called when the process ends, with all that was open in it. */
  readonly onEnd = new Set<() => void>();
  readonly #world: World;
  readonly #dice: Dice;
  readonly #firstMembers: readonly Member[] | undefined;
  #incarnation = 0;
  /** Notifications that a paused process has not run yet. */
  #unread: (() => void)[] = [];
  #missedTicks = 0;
  #torn: readonly Uint8Array[] = [];
  /** What could be read from the disk when the process started. */
  #found = new DurableShadow();
  /** The checker's view of the durable state before that. */
  #before = new DurableShadow();

  constructor(world: World, member: Member, firstMembers: readonly Member[] | undefined) {
    this.#world = world;
    this.member = member;
    this.#firstMembers = firstMembers;
    this.#dice = new Dice(world.seed, `member ${member.id}`);
    this.machine = this.#newMachine();
    const { queue, checker } = world;
    this.disk = new SimulatedDisk({
      dice: new Dice(world.seed, `disk ${member.id}`),
      after: (delayUs, run) => queue.after(delayUs, run),
      latencyUs: () => this.#dice.skewed(50, this.maxDiskUs),
      notify: (run) => this.#whenAwake(run),
      onDurable: (path, bytes) => {
        if (path.includes("/wal/")) checker.durable(member.id, bytes);
      },
      onMisuse: (what) =>
        checker.demand(false, "nothing is written after a failed write or sync", () => what),
    });
  }

  get id(): number {
    return this.member.id;
  }

  get isUp(): boolean {
    return this.state === "running" || this.state === "paused";
  }

  /** This machine's clock, milliseconds since the start; it may differ far from the others'. */
  get wallClockMs(): number {
    return Math.floor(this.#world.queue.nowUs / 1000 / this.clockRate);
  }

  /** Starts a process on the content of the disk. */
  start(): void {
    if (this.state !== "down") return;
    this.state = "starting";
    const incarnation = ++this.#incarnation;
    this.machine = this.#newMachine();
    this.#found = DurableShadow.ofSegments(this.#segments());
    this.#before = this.#world.checker.member(this.id).shadow;
    // A damaged disk must only be refused, or not relied on.
    if (incarnation > 1 && !this.isDamaged) this.#restart();
    this.#open(incarnation).then(
      (replica) => this.#opened(incarnation, replica),
      (error: AppError) => this.#refused(incarnation, error),
    );
  }

  #open(incarnation: number): Promise<RaftReplica<ControlReply>> {
    const { settings } = this.#world;
    return RaftReplica.open<ControlReply>({
      id: this.id,
      incarnation,
      storage: {
        files: this.disk,
        directory: "data",
        owner: { cluster: "simulated", node: String(this.id) },
        segmentBytes: settings.segmentBytes,
        trailingEntries: settings.trailingEntries,
        onDamaged: (error) => this.#trace(() => `finds damage: ${error.message}`),
      },
      machine: this.machine,
      transport: this.#transport(incarnation),
      random: this.#dice.random,
      firstMembers: this.#firstMembers,
      isJoining: this.#firstMembers === undefined,
      electionTicks: settings.electionTicks,
      heartbeatTicks: 1,
      requestTicks: settings.requestTicks,
      snapshotEntries: settings.snapshotEntries,
      yieldToLoop: () => Promise.resolve(),
      onFatal: (error) => this.#onFatal(incarnation, error),
      trace: (event) => {
        if (event.kind === "started") this.#started(event);
      },
    });
  }

  #restart(): void {
    this.#world.checker.started(this.id, this.#found, lowestTouched(this.#torn));
  }

  /**
   * The state that a new process's core reports must have been durable, and is durable from now on.
   */
  #started(found: { term: number; commit: number; last: EntryId }): void {
    if (this.isDamaged) this.#restart();
    this.#torn = [];
    this.#world.checker.recovered(this.id, found);
  }

  #opened(incarnation: number, replica: RaftReplica<ControlReply>): void {
    if (incarnation !== this.#incarnation || this.state !== "starting") return;
    this.state = "running";
    this.replica = replica;
    const { bug } = this.#world;
    if (bug === "ackBeforeFsync") this.disk.faults.lies = "answersEarly";
    if (bug === "skipFsync") this.disk.faults.lies = "skipsSync";
    this.#trace(() => `runs, applied to ${replica.status().applied}`);
    this.#scheduleTick(incarnation);
  }

  /**
   * A damaged log must be refused, and an error of the disk ends the process; all else is a
   * violation.
   */
  #refused(incarnation: number, error: AppError): void {
    if (incarnation !== this.#incarnation) return;
    this.#trace(() => `does not start: ${error.message}`);
    if (this.disk.failed > 0) {
      this.crash();
      return;
    }
    this.#world.checker.demand(
      this.isDamaged,
      "a member starts on an undamaged disk",
      () => `member ${this.id}: ${error.message}`,
    );
    this.end("lost");
  }

  /** True once its disk was damaged on purpose. */
  isDamaged = false;

  #onFatal(incarnation: number, error: AppError): void {
    const { checker, queue } = this.#world;
    this.#trace(() => `ends: ${error.message}`);
    const { message: cause } = toAppError(error.cause ?? error);
    const isInvariant = cause.startsWith("raft invariant broken");
    checker.demand(!isInvariant, "the core's own invariants", () => cause);
    checker.demand(
      this.disk.failed > 0,
      "a process ends only for an error of its disk",
      () =>
        `member ${this.id}: ${error.message} ${(error.cause as Error | undefined)?.stack ?? error.stack}`,
    );
    queue.after(0, () => {
      if (incarnation === this.#incarnation && this.state !== "gone") this.crash();
    });
  }

  /** Ends the process without warning: by a power cut, or by a kill that keeps the page cache. */
  crash(): void {
    if (this.state === "lost" || this.state === "gone") return;
    this.end("down");
  }

  end(state: "down" | "lost" | "gone"): void {
    // What a start read from the page cache need not be on the disk before it is reported.
    if (this.state === "starting") this.#world.checker.member(this.id).shadow = this.#before;
    this.#incarnation++;
    this.state = state;
    this.replica = undefined;
    this.#unread = [];
    this.#missedTicks = 0;
    const isKilled = this.#dice.chance(0.5);
    this.#trace(() => `is ${state}, by a ${isKilled ? "kill" : "power cut"}`);
    const torn = isKilled ? this.disk.kill() : this.disk.crash();
    // The next process may also find writes of one that never finished its start.
    this.#torn = [...this.#torn, ...torn];
    const ended = [...this.onEnd];
    this.onEnd.clear();
    for (const notify of ended) notify();
  }

  pause(): void {
    if (this.state !== "running") return;
    this.state = "paused";
    this.#trace(() => "pauses");
  }

  wake(): void {
    if (this.state !== "paused") return;
    this.state = "running";
    this.#trace(() => `wakes, ${this.#missedTicks} ticks late`);
    const ticks = this.#missedTicks;
    this.#missedTicks = 0;
    if (ticks > 0) this.replica?.tick(ticks);
    const unread = this.#unread;
    this.#unread = [];
    for (const run of unread) run();
  }

  /** Delivers a message from another member. */
  deliver(message: Message): void {
    if (this.#unread.length < MAX_UNREAD) this.#whenAwake(() => this.#receive(message));
  }

  #receive(message: Message): void {
    this.replica?.receive([message]);
  }

  /** Runs it now, or when the process resumes. */
  #whenAwake(run: () => void): void {
    if (this.state === "paused") this.#unread.push(run);
    else run();
  }

  #scheduleTick(incarnation: number): void {
    const { queue, settings } = this.#world;
    queue.after(settings.tickUs * this.clockRate, () => {
      if (incarnation !== this.#incarnation) return;
      if (this.state === "paused") this.#missedTicks++;
      else this.replica?.tick();
      this.#scheduleTick(incarnation);
    });
  }

  #newMachine(): SimulatedMachine {
    const { checker, bug, watch } = this.#world;
    const machine = new SimulatedMachine(
      (commands, index, hash) => checker.applied(this.id, commands, index, hash()),
      bug === "lostIdempotency",
      this.newest,
    );
    machine.watch = watch;
    return machine;
  }

  #transport(incarnation: number): Transport {
    const { checker, network, bug } = this.#world;
    return {
      send: (to, messages) => {
        if (incarnation !== this.#incarnation) return false;
        let isSent = true;
        for (const message of messages) {
          checker.sent(this.id, message);
          const grants = bug === "doubleVote" && message.type === "MsgVoteResp" && message.reject;
          isSent = network.send(grants ? { ...message, reject: false } : message) && isSent;
          if (to !== message.to) throw new Error("a message goes to another member than it names");
        }
        return isSent;
      },
      sendSnapshot: (to, snapshot) => this.#sendSnapshot(to, snapshot),
      setMembers: () => undefined,
    };
  }

  async #sendSnapshot(to: number, { message, meta, chunks }: OutgoingSnapshot): Promise<void> {
    const { checker, network, members } = this.#world;
    checker.sent(this.id, message);
    this.#trace(() => `sends snapshot ${message.snapshot?.index} to member ${to}`);
    const pieces: Uint8Array[] = [];
    for await (const chunk of chunks) pieces.push(chunk);
    await this.#travel();
    const receiver = members.get(to);
    const isLost = network.isCut(this.id, to) || this.#dice.chance(network.faults.loss);
    if (isLost || receiver?.state !== "running" || !receiver.replica) throw new Error("lost");
    const replica = receiver.replica;
    const taken = replica.receiveSnapshot(
      message,
      meta,
      (async function* () {
        yield* pieces;
      })(),
    );
    // A connection breaks with the process at its other end.
    const broken = new Promise<never>((_resolve, reject) => {
      receiver.onEnd.add(() => reject(new Error("lost")));
    });
    await Promise.race([taken, broken]);
    this.#trace(() => `knows that member ${to} has snapshot ${message.snapshot?.index}`);
    await this.#travel();
  }

  #travel(): Promise<void> {
    const { queue, network } = this.#world;
    return new Promise((resolve) => {
      queue.after(network.delayUs(), () => this.#whenAwake(resolve));
    });
  }

  #segments(): Buffer[] {
    return this.walPaths().map((path) => this.disk.content(path));
  }

  walPaths(): string[] {
    return this.disk.paths().filter((path) => /\/wal\/wal-\d+\.log$/.test(path));
  }

  #trace(text: () => string): void {
    this.#world.trace(() => `member ${this.id} ${text()}`);
  }
}
