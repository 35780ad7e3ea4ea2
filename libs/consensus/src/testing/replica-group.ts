import { setImmediate as nextTurn } from "node:timers/promises";
import type { AppError } from "@heddle/base/errors";
import { seededRandom } from "@heddle/base/random";
import type { Message } from "@heddle/raft/core/message";
import type { Command, Member, OutgoingSnapshot, StateMachine, Transport } from "../ports.ts";
import { RaftReplica } from "../replica/raft-replica.ts";
import type { ReplicaOptions } from "../replica/replica-options.ts";
import { MemoryFiles } from "./memory-files.ts";

/** A state machine that keeps all commands as texts and answers with their number. */
export class TextMachine implements StateMachine<number> {
  texts: string[] = [];

  async apply(commands: readonly Command[]): Promise<number[]> {
    return commands.map(({ data }) => this.texts.push(Buffer.from(data).toString()));
  }

  snapshot(): Iterable<Uint8Array> {
    const copy = [...this.texts];
    return (function* () {
      for (const text of copy) yield Buffer.from(`${text}\n`);
    })();
  }

  async restore(chunks: AsyncIterable<Uint8Array>): Promise<void> {
    const parts: Uint8Array[] = [];
    for await (const chunk of chunks) parts.push(chunk);
    this.texts = Buffer.concat(parts).toString().split("\n").slice(0, -1);
  }
}

/** One member of the group with its disk, which outlives its replica. */
export class TestMember {
  readonly member: Member;
  readonly files = new MemoryFiles();
  machine = new TextMachine();
  replica: RaftReplica<number> | undefined;
  incarnation = 0;
  fatal: AppError | undefined;
  /** The reported damages of snapshots. */
  readonly damages: string[] = [];
  /** And of what became of their files. */
  readonly fates: string[] = [];

  constructor(id: number) {
    this.member = { id, name: `m${id}`, address: `m${id}:1`, nonce: `n${id}` };
  }

  get running(): RaftReplica<number> {
    if (!this.replica) throw new Error(`${this.member.name} does not run`);
    return this.replica;
  }
}

/** Replicas in one process, over a network that is given by hand; ticks come from `turns`. */
export class ReplicaGroup {
  readonly members = new Map<number, TestMember>();
  /** Messages that were taken from the network: `drop` says which. */
  drop: (message: Message) => boolean = () => false;
  /** Messages without a link: `send` returns false for them. */
  unlinked: (message: Message) => boolean = () => false;
  readonly sent: Message[] = [];
  /** Keyed by member, the members that its transport was given last. */
  readonly known = new Map<number, readonly Member[]>();
  readonly #random = seededRandom(42);
  readonly #overrides: Partial<ReplicaOptions<number>>;
  readonly #first: readonly Member[];

  constructor(count: number, overrides: Partial<ReplicaOptions<number>> = {}) {
    this.#overrides = overrides;
    for (let id = 1; id <= count; id++) this.members.set(id, new TestMember(id));
    this.#first = [...this.members.values()].map(({ member }) => member);
  }

  async startAll(): Promise<void> {
    for (const id of this.members.keys()) await this.start(id);
  }

  async start(id: number): Promise<TestMember> {
    const member = this.members.get(id) ?? new TestMember(id);
    this.members.set(id, member);
    member.machine = new TextMachine();
    member.fatal = undefined;
    const isFirst = this.#first.includes(member.member);
    member.replica = await RaftReplica.open<number>({
      id,
      incarnation: ++member.incarnation,
      storage: {
        files: member.files,
        directory: "data",
        owner: { cluster: "c", node: String(id) },
        segmentBytes: 64 * 1024,
        trailingEntries: 5,
        onDamaged: ({ message }, fate) => {
          member.damages.push(message);
          member.fates.push(fate);
        },
      },
      machine: member.machine,
      transport: this.#transportOf(id),
      random: this.#random,
      firstMembers: isFirst ? this.#first : undefined,
      isJoining: true,
      electionTicks: 10,
      heartbeatTicks: 1,
      requestTicks: 200,
      yieldToLoop: () => nextTurn(),
      onFatal: (error) => {
        member.fatal = error;
      },
      ...this.#overrides,
    });
    return member;
  }

  /** Ends a replica without warning: its disk keeps what was synced. */
  crash(id: number): void {
    const member = this.members.get(id);
    if (!member?.replica) return;
    void member.replica.stop().catch(() => undefined);
    member.replica = undefined;
    member.files.crash();
  }

  #transportOf(id: number): Transport {
    return {
      send: (to, messages) => {
        if (messages.some((message) => this.unlinked(message))) return false;
        for (const message of messages) {
          this.sent.push(message);
          if (!this.drop(message)) queueMicrotask(() => this.#deliver(to, message));
        }
        return this.members.get(to)?.replica !== undefined;
      },
      sendSnapshot: async (to: number, { message, meta, chunks }: OutgoingSnapshot) => {
        if (this.drop(message)) throw new Error("dropped");
        await this.members.get(to)?.running.receiveSnapshot(message, meta, chunks);
      },
      setMembers: (members) => void this.known.set(id, members),
    };
  }

  #deliver(to: number, message: Message): void {
    this.members.get(to)?.replica?.receive([message]);
  }

  /** Ticks every replica, with turns of the event loop between for their disks. */
  async turns(count: number): Promise<void> {
    for (let turn = 0; turn < count; turn++) {
      for (const { replica } of this.members.values()) replica?.tick();
      for (let i = 0; i < 5; i++) await nextTurn();
    }
  }

  /** Ticks until the condition holds; fails after this many turns. */
  async until(what: string, condition: () => boolean, turns = 2_000): Promise<void> {
    for (let turn = 0; !condition(); turn++) {
      if (turn >= turns) throw new Error(`it never came true that ${what}`);
      await this.turns(1);
    }
  }

  leader(): TestMember | undefined {
    return [...this.members.values()].find(
      ({ replica }) => replica?.status().role === "leader" && replica.fault === undefined,
    );
  }

  async elect(): Promise<TestMember> {
    await this.until("there is a leader", () => this.leader() !== undefined);
    return this.leader() as TestMember;
  }

  /** Ticks until the promise is settled, and hands on how. */
  async settle<T>(promise: Promise<T>): Promise<T> {
    let settled = false;
    const mark = () => {
      settled = true;
    };
    promise.then(mark, mark);
    await this.until("the promise is settled", () => settled);
    return promise;
  }
}
