import { seededRandom } from "@heddle/base/random";
import { decodeConfChange } from "../conf-change.ts";
import type { RaftConfig } from "../config.ts";
import { type Entry, NO_DATA } from "../entry.ts";
import { MemoryStorage } from "../memory-storage.ts";
import type { Message, MessageType } from "../message.ts";
import { RawNode, type Status } from "../raw-node.ts";
import { type ConfState, EMPTY_CONF_STATE, type ReadState, type Snapshot } from "../state.ts";

/** The shortest election timeout of all test nodes. */
export const ELECTION_TICKS = 10;

/** Where a test node starts from. */
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

/** A node with storage in memory and a driver that does everything at once. */
export class TestNode {
  readonly raw: RawNode;
  readonly storage = new MemoryStorage();
  readonly applied: Entry[] = [];
  readonly reads: ReadState[] = [];
  confState: ConfState;

  constructor(id: number, setup: NodeSetup = {}) {
    const {
      voters = [1, 2, 3],
      learners = [],
      terms = [],
      term,
      vote = 0,
      commit,
      ...rest
    } = setup;
    this.confState = { ...EMPTY_CONF_STATE, voters, learners };
    const snapshot: Snapshot = { index: 1, term: 1, confState: this.confState, data: NO_DATA };
    this.storage.applySnapshot(snapshot);
    this.storage.append(
      terms.map((entryTerm, i) => ({
        term: entryTerm,
        index: i + 2,
        type: "EntryNormal",
        data: NO_DATA,
      })),
    );
    const lastTerm = term ?? terms.at(-1) ?? 1;
    this.storage.setHardState({ term: lastTerm, vote, commit: commit ?? 1 });
    this.raw = new RawNode({
      electionTicks: ELECTION_TICKS,
      heartbeatTicks: 1,
      random: seededRandom(id),
      preVote: false,
      checkQuorum: false,
      ...rest,
      id,
      storage: this.storage,
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

  /** Works off all batches and returns the messages to peers. */
  work(): Message[] {
    const messages: Message[] = [];
    while (this.raw.hasReady()) {
      const ready = this.raw.ready();
      if (ready.hardState) this.storage.setHardState(ready.hardState);
      if (ready.snapshot) {
        this.storage.applySnapshot(ready.snapshot);
        this.confState = ready.snapshot.confState;
      }
      this.storage.append(ready.entries);
      messages.push(...ready.messages);
      this.reads.push(...ready.readStates);
      for (const entry of ready.committedEntries) {
        const change = decodeConfChange(entry);
        if (change)
          this.confState = this.raw.applyConfChange(change, entry.index) ?? this.confState;
        this.applied.push(entry);
      }
      this.raw.advance();
    }
    return messages;
  }

  /** Steps a message and returns what the node sends because of it. */
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

  /** Ticks until the election timeout has certainly passed. */
  timeOut(): Message[] {
    return this.tick(2 * ELECTION_TICKS);
  }
}

/** Several nodes and a network that delivers everything at once, but for what is cut. */
export class TestGroup {
  readonly nodes = new Map<number, TestNode>();
  readonly #cut = new Set<number>();
  readonly #dropped = new Set<MessageType>();

  constructor(ids: readonly number[], setup: (id: number) => NodeSetup = () => ({})) {
    for (const id of ids) this.nodes.set(id, new TestNode(id, { voters: ids, ...setup(id) }));
  }

  node(id: number): TestNode {
    const node = this.nodes.get(id);
    if (!node) throw new Error(`no node ${id}`);
    return node;
  }

  /** Loses all messages from and to nodes. */
  cut(...ids: number[]): void {
    for (const id of ids) this.#cut.add(id);
  }

  /** Loses all messages of a type. */
  drop(type: MessageType): void {
    this.#dropped.add(type);
  }

  mend(): void {
    this.#cut.clear();
    this.#dropped.clear();
  }

  /** Delivers messages, and those that they cause, until there are none. */
  settle(messages: readonly Message[] = []): void {
    let next = [...messages, ...[...this.nodes.values()].flatMap((node) => node.work())];
    while (next.length > 0) {
      next = next.flatMap((message) => {
        const { from, to, type } = message;
        if (this.#cut.has(from) || this.#cut.has(to) || this.#dropped.has(type)) return [];
        return this.nodes.get(to)?.take(message) ?? [];
      });
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
