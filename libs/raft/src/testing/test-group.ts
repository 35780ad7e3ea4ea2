import { seededRandom } from "@heddle/base/random";
import type { RaftConfig } from "../core/config.ts";
import type { Message, MessageType } from "../core/message.ts";
import { type ConfState, EMPTY_CONF_STATE, type ReadState, type Snapshot } from "../core/state.ts";
import { type Entry, NO_DATA } from "../log/entry.ts";
import { MemoryStorage } from "../log/memory-storage.ts";
import { decodeConfChange } from "../membership/conf-change.ts";
import { RawNode, type Status } from "../raw-node.ts";

/** The shortest election timeout of all test nodes. */
export const ELECTION_TICKS = 10;

/** The initial state of a test node. */
export interface NodeSetup extends Partial<Omit<RaftConfig, "storage">> {
  readonly voters?: readonly number[];
  readonly learners?: readonly number[];
  /** The terms of the entries 2, 3, ...; entry 1, of term 1, is in the snapshot. */
  readonly terms?: readonly number[];
  readonly term?: number;
  readonly vote?: number;
  readonly commit?: number;
}

/** The text of an entry's data. */
export function text(entry: Pick<Entry, "data">): string {
  return new TextDecoder().decode(entry.data);
}

/** The data of an entry with a text. */
export function bytes(value: string): Uint8Array {
  return new TextEncoder().encode(value);
}

function newStorage(setup: NodeSetup): MemoryStorage {
  const { voters = [1, 2, 3], learners = [], terms = [], term, vote = 0, commit = 1 } = setup;
  const storage = new MemoryStorage();
  const confState = { ...EMPTY_CONF_STATE, voters, learners };
  storage.applySnapshot({ index: 1, term: 1, confState, data: NO_DATA });
  storage.append(
    terms.map((of, i) => ({ term: of, index: i + 2, type: "EntryNormal", data: NO_DATA })),
  );
  storage.setHardState({ term: term ?? terms.at(-1) ?? 1, vote, commit });
  return storage;
}

/** A node with storage in memory and a driver that completes all work at once. */
export class TestNode {
  readonly raw: RawNode;
  readonly storage: MemoryStorage;
  readonly applied: Entry[] = [];
  /** The state machine: every applied text, in order. */
  values: string[] = [];
  readonly reads: ReadState[] = [];
  confState: ConfState;

  /** Starts on the storage of an earlier run, or on new storage as the setup says. */
  constructor(id: number, setup: NodeSetup = {}, storage = newStorage(setup)) {
    this.storage = storage;
    const snapshot = storage.snapshot();
    this.confState = snapshot.confState;
    this.#restore(snapshot);
    this.raw = new RawNode({
      electionTicks: ELECTION_TICKS,
      heartbeatTicks: 1,
      random: seededRandom(id),
      preVote: false,
      checkQuorum: false,
      ...setup,
      id,
      storage,
    });
  }

  get status(): Status {
    return this.raw.status();
  }

  /** The terms of the durable log from entry 2 on. */
  get terms(): number[] {
    const last = this.storage.lastIndex();
    return Array.from({ length: last - 1 }, (_, i) => this.storage.term(i + 2) as number);
  }

  #restore(snapshot: Snapshot): void {
    const state = text(snapshot);
    this.values = state === "" ? [] : state.split("\n");
  }

  /** Takes a snapshot of the applied state, and drops the log up to there. */
  compact(): void {
    const { applied } = this.status;
    this.storage.createSnapshot(applied, this.confState, bytes(this.values.join("\n")));
    this.storage.compact(applied);
  }

  /** Processes all batches and returns the messages to peers. */
  work(): Message[] {
    const messages: Message[] = [];
    while (this.raw.hasReady()) {
      const ready = this.raw.ready();
      if (ready.hardState) this.storage.setHardState(ready.hardState);
      if (ready.snapshot) {
        this.storage.applySnapshot(ready.snapshot);
        this.confState = ready.snapshot.confState;
        this.#restore(ready.snapshot);
      }
      this.storage.append(ready.entries);
      messages.push(...ready.messages);
      this.reads.push(...ready.readStates);
      for (const entry of ready.committedEntries) this.#apply(entry);
      this.raw.advance();
    }
    return messages;
  }

  #apply(entry: Entry): void {
    const change = decodeConfChange(entry);
    if (change) this.confState = this.raw.applyConfChange(change, entry.index) ?? this.confState;
    else if (entry.data.length > 0) this.values.push(text(entry));
    this.applied.push(entry);
  }

  /** Steps a message and returns the messages that the node sends in response. */
  take(message: Message): Message[] {
    this.raw.step(message);
    return this.work();
  }

  tick(count: number): Message[] {
    const messages: Message[] = [];
    for (let i = 0; i < count; i++) {
      this.raw.tick();
      messages.push(...this.work());
    }
    return messages;
  }

  /** Ticks until the election timeout has certainly expired. */
  timeOut(): Message[] {
    return this.tick(2 * ELECTION_TICKS);
  }
}

/** Nodes and a network that delivers at once, except messages that are cut or lost. */
export class TestGroup {
  readonly nodes = new Map<number, TestNode>();
  readonly #setup: (id: number) => NodeSetup;
  readonly #cut = new Set<number>();
  /** True for messages that get lost. */
  loses: (message: Message) => boolean = () => false;
  /** How many messages of each type were delivered. */
  readonly delivered = new Map<MessageType, number>();

  constructor(ids: readonly number[], setup: (id: number) => NodeSetup = () => ({})) {
    this.#setup = (id) => ({ voters: ids, ...setup(id) });
    for (const id of ids) this.nodes.set(id, new TestNode(id, this.#setup(id)));
  }

  node(id: number): TestNode {
    const node = this.nodes.get(id);
    if (!node) throw new Error(`no node ${id}`);
    return node;
  }

  /** The leader of the highest term among the nodes that are not cut off, if any. */
  get leader(): TestNode | undefined {
    const live = [...this.nodes.values()].filter(({ status }) => !this.#cut.has(status.id));
    const leaders = live.filter(({ status }) => status.role === "leader");
    return leaders.sort((a, b) => b.status.term - a.status.term)[0];
  }

  /** Loses all messages from and to nodes. */
  cut(...ids: number[]): void {
    for (const id of ids) this.#cut.add(id);
  }

  mend(): void {
    this.#cut.clear();
  }

  /** Stops nodes and restarts them on their durable state. */
  restart(...ids: number[]): void {
    for (const id of ids) {
      const { storage } = this.node(id);
      this.nodes.set(id, new TestNode(id, this.#setup(id), storage));
    }
  }

  /** Delivers messages, and those that they cause, until there are none. */
  settle(messages: readonly Message[] = []): void {
    let next = [...messages, ...[...this.nodes.values()].flatMap((node) => node.work())];
    while (next.length > 0) next = next.flatMap((message) => this.#deliver(message));
  }

  #deliver(message: Message): Message[] {
    const { from, to, type } = message;
    if (this.#cut.has(from) || this.#cut.has(to) || this.loses(message)) {
      // A driver knows when a snapshot was lost.
      if (type !== "MsgSnap") return [];
      this.node(from).raw.reportSnapshot(to, "failed");
      return this.node(from).work();
    }
    this.delivered.set(type, (this.delivered.get(type) ?? 0) + 1);
    return this.nodes.get(to)?.take(message) ?? [];
  }

  /** Ticks all nodes. */
  run(ticks: number): void {
    for (let i = 0; i < ticks; i++) {
      for (const node of [...this.nodes.values()]) this.settle(node.tick(1));
    }
  }

  elect(id: number): void {
    this.node(id).raw.campaign();
    this.settle();
  }

  propose(id: number, value: string) {
    const result = this.node(id).raw.propose(bytes(value));
    this.settle();
    return result;
  }

  beat(id: number): void {
    this.settle(this.node(id).tick(1));
  }
}
