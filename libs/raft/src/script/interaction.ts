import type { RaftConfig } from "../core/config.ts";
import { isStorageThread, type Message, type MessageType } from "../core/message.ts";
import type { StepResult } from "../core/raft.ts";
import {
  type ConfState,
  EMPTY_CONF_STATE,
  type HardState,
  isEmptyHardState,
  type Snapshot,
} from "../core/state.ts";
import { type Entry, NO_DATA } from "../log/entry.ts";
import { MemoryStorage } from "../log/memory-storage.ts";
import { decodeConfChange } from "../membership/conf-change.ts";
import { RawNode } from "../raw-node.ts";
import { describeEntries, describeMessage, describeReady } from "./describe.ts";
import { CommandError, ScriptError } from "./directive.ts";
import { Output } from "./output.ts";
import { traceText } from "./trace-text.ts";

/** What a script may set for the nodes that it adds; the environment gives the rest. */
export type NodeOptions = Omit<RaftConfig, "id" | "storage" | "trace">;

/** Storage whose snapshot is always of the last applied entry. */
class ScriptStorage extends MemoryStorage {
  readonly #history: readonly Snapshot[];

  constructor(history: readonly Snapshot[]) {
    super();
    this.#history = history;
  }

  override snapshot(): Snapshot {
    return this.#history.at(-1) as Snapshot;
  }
}

/** One node of a script with its storage and the work that waits for its storage threads. */
interface ScriptNode {
  readonly id: number;
  readonly raw: RawNode;
  readonly storage: ScriptStorage;
  readonly options: NodeOptions;
  readonly appendWork: Message[];
  readonly applyWork: Message[];
  /** The state after each applied entry: the concatenation of all data. */
  readonly history: Snapshot[];
}

/** Which messages a delivery takes. */
interface Delivery {
  readonly to: number;
  readonly type?: MessageType | undefined;
  readonly drop?: boolean;
}

const STEP_ERRORS = {
  dropped: "raft proposal dropped",
  localMessage: "raft: cannot step raft local message",
  unknownPeer: "raft: cannot step as peer not found",
};

/** The error text of a step that was not taken in, else undefined. */
export function stepError(result: StepResult): string | undefined {
  return result.ok ? undefined : STEP_ERRORS[result.error];
}

function isLocal(message: Message): boolean {
  const { from, to } = message;
  return from === to || isStorageThread(from) || isStorageThread(to);
}

function selects({ to, type, drop }: Delivery, message: Message): boolean {
  if (message.to !== to || (drop && isLocal(message))) return false;
  return type === undefined || message.type === type;
}

/** The nodes of a script and the messages between them; nothing moves unless a command says so. */
export class InteractionEnvironment {
  readonly output = new Output();
  readonly #nodes: ScriptNode[] = [];
  /** Sent and neither delivered nor dropped, in the order sent. */
  #messages: Message[] = [];

  get nodes(): readonly ScriptNode[] {
    return this.#nodes;
  }

  node(id: number): ScriptNode {
    const node = this.#nodes[id - 1];
    if (!node) throw new ScriptError(`there is no node ${id}; add it with add-nodes`);
    return node;
  }

  addNodes(count: number, options: NodeOptions, snapshot: Snapshot): void {
    for (let i = 0; i < count; i++) {
      const history = [snapshot];
      const storage = new ScriptStorage(history);
      if (snapshot.index > 0) storage.applySnapshot(snapshot);
      const id = this.#nodes.length + 1;
      const raw = new RawNode({
        ...options,
        id,
        storage,
        trace: (event) => this.output.log(...traceText(event)),
      });
      this.#nodes.push({ id, raw, storage, options, appendWork: [], applyWork: [], history });
    }
  }

  send(message: Message): void {
    this.#messages.push(message);
  }

  /** Delivers or drops the messages that are selected, in the order sent; returns how many. */
  deliver(delivery: Delivery): number {
    const taken = this.#messages.filter((message) => selects(delivery, message));
    this.#messages = this.#messages.filter((message) => !selects(delivery, message));
    for (const message of taken) {
      this.output.write(`${delivery.drop ? "dropped: " : ""}${describeMessage(message)}\n`);
      if (delivery.drop) continue;
      const error = stepError(this.node(delivery.to).raw.step(message));
      if (error) this.output.write(`${error}\n`);
    }
    return taken.length;
  }

  processReady(node: ScriptNode): void {
    const isAsync = node.options.asyncStorageWrites ?? false;
    const ready = node.raw.ready();
    this.output.write(describeReady(ready));
    if (!isAsync) {
      this.#append(node, ready.hardState, ready.entries, ready.snapshot);
      this.#apply(node, ready.committedEntries);
    }
    for (const message of ready.messages) {
      if (message.type === "MsgStorageAppend") node.appendWork.push(message);
      else if (message.type === "MsgStorageApply") node.applyWork.push(message);
      else this.send(message);
    }
    if (!isAsync) node.raw.advance();
  }

  processAppendThread(node: ScriptNode): void {
    this.#processWork(node.appendWork, "no append work to perform", (message) => {
      const { term, vote, commit, entries, snapshot } = message;
      this.#append(node, { term, vote, commit }, entries, snapshot);
    });
  }

  processApplyThread(node: ScriptNode): void {
    this.#processWork(node.applyWork, "no apply work to perform", (message) => {
      this.#apply(node, message.entries);
    });
  }

  #processWork(work: Message[], none: string, perform: (message: Message) => void): void {
    const message = work.shift();
    if (!message) {
      this.output.write(none);
      return;
    }
    this.output.write(`Processing:\n${describeMessage({ ...message, responses: [] })}\n`);
    perform(message);
    this.output.write("Responses:\n");
    for (const response of message.responses) this.output.write(`${describeMessage(response)}\n`);
    this.#messages.push(...message.responses);
  }

  #append(
    node: ScriptNode,
    hardState: HardState | undefined,
    entries: readonly Entry[],
    snapshot: Snapshot | undefined,
  ): void {
    if (hardState && !isEmptyHardState(hardState)) node.storage.setHardState(hardState);
    if (!snapshot) {
      node.storage.append(entries);
      return;
    }
    if (entries.length > 0)
      throw new CommandError("can't apply snapshot and entries at the same time");
    if (!node.storage.applySnapshot(snapshot)) {
      throw new CommandError("requested index is older than the existing snapshot");
    }
  }

  #apply(node: ScriptNode, entries: readonly Entry[]): void {
    for (const entry of entries) {
      const previous = node.history.at(-1) as Snapshot;
      const change = decodeConfChange(entry);
      const update = change ? change.context : entry.data;
      const changed = change && node.raw.applyConfChange(change, entry.index);
      const confState: ConfState = changed ?? previous.confState;
      const data = Uint8Array.from([...previous.data, ...update]);
      node.history.push({ index: entry.index, term: entry.term, confState, data });
    }
  }

  /** Prints the durable log of a node. */
  printLog(node: ScriptNode): void {
    const first = node.storage.firstIndex();
    const last = node.storage.lastIndex();
    if (last < first) {
      this.output.write(`log is empty: first index=${first}, last index=${last}`);
      return;
    }
    const entries = node.storage.entries(first, last + 1, Number.POSITIVE_INFINITY);
    if (typeof entries === "string") throw new CommandError(`entries are ${entries}`);
    this.output.write(describeEntries(entries));
  }

  /** Lets the nodes work and exchange messages until nothing is left to do. */
  stabilize(nodes: readonly ScriptNode[]): void {
    for (let done = false; !done; ) {
      done = true;
      const section = (node: ScriptNode, title: string, action: () => void) => {
        this.output.write(`> ${node.id} ${title}\n`);
        this.output.indent(action);
        done = false;
      };
      for (const node of nodes) {
        if (!node.raw.hasReady()) continue;
        section(node, "handling Ready", () => this.processReady(node));
      }
      for (const node of nodes) {
        if (!this.#messages.some((message) => message.to === node.id)) continue;
        section(node, "receiving messages", () => this.deliver({ to: node.id }));
      }
      for (const node of nodes) {
        if (node.appendWork.length === 0) continue;
        section(node, "processing append thread", () => {
          while (node.appendWork.length > 0) this.processAppendThread(node);
        });
      }
      for (const node of nodes) {
        if (node.applyWork.length === 0) continue;
        section(node, "processing apply thread", () => {
          while (node.applyWork.length > 0) this.processApplyThread(node);
        });
      }
    }
  }
}

/** The state of a node that starts with nothing. */
export const EMPTY_SNAPSHOT: Snapshot = {
  index: 0,
  term: 0,
  confState: EMPTY_CONF_STATE,
  data: NO_DATA,
};
