import type { Random } from "@heddle/base/random";
import type { RaftConfig } from "../core/config.ts";
import type { Message } from "../core/message.ts";
import type { ConfState, ReadState, Snapshot } from "../core/state.ts";
import type { Entry } from "../log/entry.ts";
import { MemoryStorage } from "../log/memory-storage.ts";
import { decodeConfChange } from "../membership/conf-change.ts";
import { RawNode } from "../raw-node.ts";
import type { SafetyChecker } from "./safety-checker.ts";

/** A planted bug of a simulated node, which the checker must detect. */
export type SeededNodeBug = "skipFsync" | "forgetVote" | "leaseRead";

interface SimulatedNodeOptions {
  readonly id: number;
  readonly random: Random;
  readonly checker: SafetyChecker;
  /** The node options that differ between runs. */
  readonly config: Pick<
    RaftConfig,
    "asyncStorageWrites" | "preVote" | "checkQuorum" | "stepDownOnRemoval"
  >;
  readonly bug?: SeededNodeBug | undefined;
  readonly bootstrap?: Snapshot | undefined;
  readonly send: (message: Message) => void;
  readonly onRead: (read: ReadState) => void;
}

/** The state machine: a number that every applied entry changes. */
function nextState(state: number, entry: Entry): number {
  let next = Math.imul(state ^ (entry.index + entry.term * 7919), 0x01000193) >>> 0;
  for (const byte of entry.data) next = Math.imul(next ^ byte, 0x01000193) >>> 0;
  return next;
}

function encodeState(state: number): Uint8Array {
  return new Uint8Array(Uint32Array.of(state).buffer);
}

function decodeState(data: Uint8Array): number {
  return data.length === 0 ? 0 : (new Uint32Array(data.slice().buffer)[0] as number);
}

/** A driver of one RawNode: storage survives a crash, work in progress does not. */
export class SimulatedNode {
  readonly id: number;
  storage: MemoryStorage;
  /** The node while it runs. */
  raw: RawNode | undefined;
  /** The terms of the log as the node sees it. */
  logTerms = new Map<number, number>();
  applied = 0;
  #state = 0;
  #commit = 0;
  readonly #options: SimulatedNodeOptions;
  #appendWork: Message[] = [];
  #applyWork: Message[] = [];
  /** With skipFsync: the content of the disk. */
  #image: (() => MemoryStorage) | undefined;
  /** As of the last applied entry; undefined while a pending snapshot must bring it. */
  #confState: ConfState | undefined;

  constructor(options: SimulatedNodeOptions) {
    this.#options = options;
    this.id = options.id;
    this.storage = new MemoryStorage();
    if (options.bootstrap) this.storage.applySnapshot(options.bootstrap);
    this.start();
  }

  get #raw(): RawNode {
    if (!this.raw) throw new Error(`node ${this.id} is down`);
    return this.raw;
  }

  start(): void {
    const { id, random, bug, checker } = this.#options;
    const snapshot = this.storage.snapshot();
    this.applied = snapshot.index;
    this.#state = decodeState(snapshot.data);
    this.#confState = snapshot.confState;
    this.#readTerms();
    const config: RaftConfig = {
      id,
      electionTicks: 10,
      heartbeatTicks: 1,
      storage: this.storage,
      random,
      applied: snapshot.index,
      ...this.#options.config,
      maxMessageBytes: 64,
      maxApplyingBytes: 128,
      maxUncommittedBytes: 1024,
      maxInflightMessages: 4,
      maxInflightBytes: 256,
      readMode: bug === "leaseRead" ? "lease" : "quorum",
      trace: (event) => {
        if (event.kind === "roleChanged" && event.role === "leader") {
          // The leader's own first entry is in its log by now, and no Ready has shown it yet.
          checker.leaderElected(this, event.term);
        }
      },
    };
    this.raw = new RawNode(config);
    this.#commit = this.raw.status().commit;
  }

  #readTerms(): void {
    this.logTerms = new Map();
    for (let i = this.storage.firstIndex() - 1; i <= this.storage.lastIndex(); i++) {
      const term = this.storage.term(i);
      if (typeof term === "number") this.logTerms.set(i, term);
    }
  }

  crash(): void {
    this.raw = undefined;
    this.#appendWork = [];
    this.#applyWork = [];
    if (this.#image) this.storage = this.#image();
    if (this.#options.bug === "forgetVote") {
      const { hardState } = this.storage.initialState();
      this.storage.setHardState({ ...hardState, vote: 0 });
    }
  }

  /** Processes one batch; `crashAfter` stops the node part of the way. */
  processReady(crashAfter?: "taken" | "written"): void {
    const raw = this.#raw;
    if (!raw.hasReady()) return;
    const ready = raw.ready();
    const { checker, config, send, onRead } = this.#options;
    this.#note(ready.snapshot, ready.entries);
    this.#checkCommit();
    if (crashAfter === "taken") {
      this.crash();
      return;
    }
    for (const read of ready.readStates) onRead(read);
    if (config.asyncStorageWrites) {
      for (const message of ready.messages) {
        if (message.type === "MsgStorageAppend") this.#appendWork.push(message);
        else if (message.type === "MsgStorageApply") this.#applyWork.push(message);
        else this.#send(message);
      }
      return;
    }
    this.#write(ready.snapshot, ready.entries, ready.hardState);
    if (crashAfter === "written") {
      this.crash();
      return;
    }
    for (const message of ready.messages) {
      checker.sent(this, message);
      send(message);
    }
    this.#apply(ready.committedEntries);
    raw.advance();
  }

  #send(message: Message): void {
    this.#options.checker.sent(this, message);
    this.#options.send(message);
  }

  /** Runs the oldest task of a storage thread, and delivers or sends its responses. */
  processStorage(thread: "append" | "apply"): void {
    const [next] = thread === "append" ? this.#appendWork : this.#applyWork;
    if (thread === "apply" && next?.entries.some(({ type }) => type !== "EntryNormal")) {
      // A membership must not take effect before the commit index that covers it is durable.
      while (this.#appendWork.length > 0) this.processStorage("append");
    }
    const message = (thread === "append" ? this.#appendWork : this.#applyWork).shift();
    if (!message) return;
    const { term, vote, commit, entries, snapshot } = message;
    if (thread === "apply") this.#apply(entries);
    else this.#write(snapshot, entries, term > 0 ? { term, vote, commit } : undefined);
    for (const response of message.responses) {
      if (response.to === this.id) this.#raw.step(response);
      else this.#send(response);
    }
  }

  /** Takes a snapshot of the state and drops all but the last `keep` entries. */
  compact(keep: number): void {
    const { applied } = this;
    const confState = this.#confState;
    const isNew = applied > this.storage.snapshot().index && applied <= this.storage.lastIndex();
    if (!isNew || !confState) return;
    this.storage.createSnapshot(applied, confState, encodeState(this.#state));
    const upTo = applied - keep;
    if (upTo >= this.storage.firstIndex()) this.storage.compact(upTo);
    this.#flush();
  }

  #note(snapshot: Snapshot | undefined, entries: readonly Entry[]): void {
    if (snapshot) this.logTerms = new Map([[snapshot.index, snapshot.term]]);
    const first = entries[0];
    if (!first) return;
    for (const index of this.logTerms.keys()) {
      if (index >= first.index) this.logTerms.delete(index);
    }
    for (const entry of entries) {
      this.logTerms.set(entry.index, entry.term);
      this.#options.checker.appended(this, [entry]);
    }
  }

  #write(
    snapshot: Snapshot | undefined,
    entries: readonly Entry[],
    hardState: { term: number; vote: number; commit: number } | undefined,
  ): void {
    if (snapshot) {
      this.storage.applySnapshot(snapshot);
      if (snapshot.index > this.applied) {
        this.applied = snapshot.index;
        this.#state = decodeState(snapshot.data);
        this.#confState = snapshot.confState;
        this.#options.checker.applied(this, this.applied, this.#state);
      }
    }
    this.storage.append(entries);
    if (hardState) {
      this.storage.setHardState(hardState);
      this.#options.checker.hardState(this, hardState);
    }
    if (snapshot || this.#options.random() < 0.5) this.#flush();
  }

  /** With skipFsync, a crash loses what was not flushed by chance. */
  #flush(): void {
    if (this.#options.bug !== "skipFsync") return;
    const { hardState } = this.storage.initialState();
    const snapshot = this.storage.snapshot();
    const last = this.storage.lastIndex();
    const entries = this.storage.entries(snapshot.index + 1, last + 1, Number.POSITIVE_INFINITY);
    this.#image = () => {
      const storage = new MemoryStorage();
      storage.applySnapshot(snapshot);
      if (typeof entries !== "string") storage.append(entries);
      storage.setHardState(hardState);
      return storage;
    };
  }

  #apply(entries: readonly Entry[]): void {
    for (const entry of entries) {
      // A snapshot may have overtaken entries that wait to be applied.
      if (entry.index <= this.applied) continue;
      const change = decodeConfChange(entry);
      if (change) this.#confState = this.#raw.applyConfChange(change, entry.index);
      this.applied = entry.index;
      this.#state = nextState(this.#state, entry);
      this.#options.checker.applied(this, this.applied, this.#state);
    }
  }

  #checkCommit(): void {
    const { commit } = this.#raw.status();
    this.#options.checker.committed(this, this.#commit, commit);
    this.#commit = commit;
  }
}
