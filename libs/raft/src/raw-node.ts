import { type RaftConfig, resolveConfig } from "./core/config.ts";
import {
  createMessage,
  isLocalMessage,
  isResponse,
  isStorageThread,
  type Message,
} from "./core/message.ts";
import { Raft, STEPPED, type StepResult } from "./core/raft.ts";
import {
  type Ready,
  storageAppend,
  storageAppendResponse,
  storageApply,
  storageApplyResponse,
} from "./core/ready.ts";
import {
  type ConfState,
  type HardState,
  hardStatesEqual,
  isEmptyHardState,
  NO_NODE,
  type SoftState,
} from "./core/state.ts";
import { step } from "./core/step.ts";
import { tick } from "./core/tick.ts";
import { invariant } from "./invariant.ts";
import { type EntryPayload, entriesBytes } from "./log/entry.ts";
import { type ConfChange, encodeConfChange } from "./membership/conf-change.ts";
import { applyConfChange, restoreConfState } from "./membership/membership.ts";
import type { Progress } from "./tracker/progress.ts";
import { voterIds } from "./tracker/quorum.ts";
import type { TrackerConfig } from "./tracker/tracker.ts";

/**
 * The status of a node. `progress` is live, and empty unless the node leads: read it, and do not
 * keep it.
 */
export interface Status extends HardState, SoftState {
  readonly id: number;
  readonly applied: number;
  readonly leadTransferee: number;
  readonly config: TrackerConfig;
  readonly progress: ReadonlyMap<number, Progress>;
}

/**
 * One Raft node as a state machine: inputs arrive through methods, and the work that results is in
 * `ready`. Every method is synchronous and not reentrant; the README gives the order of a driver's
 * steps.
 */
export class RawNode {
  readonly #raft: Raft;
  /** The state in the last batch; a batch holds only what differs. */
  #previousSoftState: SoftState;
  #previousHardState: HardState;
  /** The acknowledgements of the last batch, which `advance` steps. */
  #stepsOnAdvance: Message[] = [];
  /** True between `ready` and `advance`. */
  #awaitsAdvance = false;

  /**
   * Starts a node from the state in storage; throws `invalid_value` for an invalid configuration.
   */
  constructor(config: RaftConfig) {
    this.#raft = start(config);
    this.#previousSoftState = this.#raft.softState;
    this.#previousHardState = this.#raft.hardState;
  }

  get #async(): boolean {
    return this.#raft.config.asyncStorageWrites;
  }

  /** Advances the timers by the tick intervals since the last call; see `lateTicks`. */
  tick(elapsedTicks = 1): void {
    tick(this.#raft, elapsedTicks);
  }

  /** Starts an election now. */
  campaign(): StepResult {
    return this.#stepLocal("MsgHup");
  }

  /** Proposes a command for the log; whether it is committed shows only when it is applied. */
  propose(data: Uint8Array): StepResult {
    return this.#stepPayloads("MsgProp", [{ type: "EntryNormal", data }]);
  }

  /** Proposes several commands, which get consecutive places in the log or are all refused. */
  proposeAll(batch: readonly Uint8Array[]): StepResult {
    const payloads = batch.map((data): EntryPayload => ({ type: "EntryNormal", data }));
    return payloads.length === 0 ? STEPPED : this.#stepPayloads("MsgProp", payloads);
  }

  /** Proposes a membership change; version 1 takes one step and no transition. */
  proposeConfChange(change: ConfChange, version: 1 | 2 = 2): StepResult {
    return this.#stepPayloads("MsgProp", [encodeConfChange(change, version)]);
  }

  /**
   * Applies the membership change of the committed entry at an index, in the order of the entries.
   * Returns the configuration that results, to be stored with snapshots.
   *
   * - Not called for a change that the application rejects.
   * - Undefined: the entry is already applied, or a snapshot that contains it has overtaken it. The
   *   driver then takes no snapshot of its own until that one is restored.
   */
  applyConfChange(change: ConfChange, index: number): ConfState | undefined {
    return applyConfChange(this.#raft, change, index);
  }

  /** Requests a read; the answer arrives with the same context in `readStates`, or never. */
  readIndex(context: Uint8Array): StepResult {
    return this.#stepPayloads("MsgReadIndex", [{ type: "EntryNormal", data: context }]);
  }

  /** Requests that the leader, directly or through forwarding, transfers leadership to a member. */
  transferLeader(to: number): void {
    this.#stepLocal("MsgTransferLeader", to);
  }

  /** Makes a follower forget its leader, so that it votes without waiting for the timeout. */
  forgetLeader(): void {
    this.#stepLocal("MsgForgetLeader");
  }

  /** Reports that a message to a member was lost. */
  reportUnreachable(id: number): void {
    this.#stepLocal("MsgUnreachable", id);
  }

  /** Reports the outcome of a snapshot sent to a member; replication is paused until then. */
  reportSnapshot(id: number, outcome: "delivered" | "failed"): void {
    const reject = outcome === "failed";
    const to = this.#raft.id;
    step(this.#raft, createMessage({ type: "MsgSnapStatus", to, from: id, reject }));
  }

  /** Processes a message from a peer, or from a storage thread. */
  step(message: Message): StepResult {
    const fromThread = isStorageThread(message.from);
    if (isLocalMessage(message.type) && !fromThread) return { ok: false, error: "localMessage" };
    if (isResponse(message.type) && !fromThread && !this.#raft.tracker.get(message.from)) {
      return { ok: false, error: "unknownPeer" };
    }
    return step(this.#raft, message);
  }

  /** True if `ready` would hold anything. */
  hasReady(): boolean {
    const raft = this.#raft;
    const { log } = raft;
    return (
      raft.messages.length > 0 ||
      raft.messagesAfterAppend.length > 0 ||
      raft.readStates.length > 0 ||
      log.hasNextUnstableEntries ||
      log.nextUnstableSnapshot() !== undefined ||
      log.hasNextCommittedEntries(!this.#async) ||
      this.#hardStateChanged ||
      this.#softStateChanged
    );
  }

  get #hardStateChanged(): boolean {
    // Field by field: this runs after every message, and a copy of the fields would be garbage.
    const { term, vote, commit } = this.#previousHardState;
    const raft = this.#raft;
    return raft.term !== term || raft.vote !== vote || raft.log.committed !== commit;
  }

  get #softStateChanged(): boolean {
    const { lead, role } = this.#previousSoftState;
    return this.#raft.lead !== lead || this.#raft.role !== role;
  }

  /** The pending work. The call accepts the batch: the driver must do all of it. */
  ready(): Ready {
    invariant(
      this.#async || !this.#awaitsAdvance,
      () => "ready was called again before advance; finish the batch first",
    );
    const raft = this.#raft;
    const { hardState, softState } = raft;
    const previous = this.#previousHardState;
    const entries = raft.log.nextUnstableEntries();
    const ready: Ready = {
      softState: this.#softStateChanged ? softState : undefined,
      hardState: hardStatesEqual(hardState, previous) ? undefined : hardState,
      readStates: raft.readStates,
      entries,
      snapshot: raft.log.nextUnstableSnapshot(),
      committedEntries: raft.log.nextCommittedEntries(!this.#async),
      messages: [],
      mustSync:
        entries.length > 0 || hardState.vote !== previous.vote || hardState.term !== previous.term,
    };
    const messages = this.#async ? this.#asyncMessages(ready) : this.#syncMessages(ready);
    this.#accept(ready);
    return { ...ready, messages };
  }

  /** All messages may leave once the batch is written; those for this node wait for `advance`. */
  #syncMessages(ready: Ready): Message[] {
    const { id, messages, messagesAfterAppend } = this.#raft;
    this.#awaitsAdvance = true;
    this.#stepsOnAdvance = messagesAfterAppend.filter((message) => message.to === id);
    const appended = storageAppendResponse(this.#raft, ready);
    if (appended) this.#stepsOnAdvance.push(appended);
    const applied = storageApplyResponse(this.#raft, ready);
    if (applied) this.#stepsOnAdvance.push(applied);
    return [...messages, ...messagesAfterAppend.filter((message) => message.to !== id)];
  }

  /** Messages that depend on the batch travel within the message to the append thread. */
  #asyncMessages(ready: Ready): Message[] {
    const messages = [...this.#raft.messages];
    const append = storageAppend(this.#raft, ready);
    if (append) messages.push(append);
    const apply = storageApply(this.#raft, ready);
    if (apply) messages.push(apply);
    return messages;
  }

  #accept(ready: Ready): void {
    const raft = this.#raft;
    if (ready.softState) this.#previousSoftState = ready.softState;
    if (ready.hardState) this.#previousHardState = ready.hardState;
    raft.readStates = [];
    raft.messages = [];
    raft.messagesAfterAppend = [];
    raft.log.acceptUnstable();
    const last = ready.committedEntries.at(-1);
    if (last) {
      raft.log.acceptApplying(last.index, entriesBytes(ready.committedEntries), !this.#async);
    }
  }

  /** Reports that the last batch is done; not used with asyncStorageWrites. */
  advance(): void {
    invariant(!this.#async, () => "advance was called though storage writes are asynchronous");
    invariant(this.#awaitsAdvance, () => "advance was called without a batch");
    this.#awaitsAdvance = false;
    const steps = this.#stepsOnAdvance;
    this.#stepsOnAdvance = [];
    for (const message of steps) step(this.#raft, message);
  }

  /** The part of the status that a driver reads with each batch, without a copy of the rest. */
  get basicStatus(): SoftState & { readonly term: number; readonly commit: number } {
    const { lead, role, term, log } = this.#raft;
    return { lead, role, term, commit: log.committed };
  }

  status(): Status {
    const raft = this.#raft;
    return {
      id: raft.id,
      ...raft.hardState,
      ...raft.softState,
      applied: raft.log.applied,
      leadTransferee: raft.leadTransferee,
      config: raft.tracker.config,
      progress: raft.role === "leader" ? raft.tracker.progress : new Map(),
    };
  }

  /** Sets the election timeout of the current role in place of the random one; for tests. */
  setRandomizedElectionTicks(ticks: number): void {
    this.#raft.randomizedElectionTicks = ticks;
  }

  #stepLocal(
    type: "MsgHup" | "MsgTransferLeader" | "MsgForgetLeader" | "MsgUnreachable",
    from: number = NO_NODE,
  ): StepResult {
    return step(this.#raft, createMessage({ type, to: this.#raft.id, from }));
  }

  #stepPayloads(type: "MsgProp" | "MsgReadIndex", payloads: readonly EntryPayload[]): StepResult {
    const { id } = this.#raft;
    const entries = payloads.map(({ type, data }) => ({ type, data, term: 0, index: 0 }));
    return step(this.#raft, createMessage({ type, to: id, from: id, entries }));
  }
}

function start(config: RaftConfig): Raft {
  const raft = new Raft(resolveConfig(config));
  const { storage, applied } = raft.config;
  const { hardState, confState } = storage.initialState();
  const last = raft.log.lastId;
  restoreConfState(raft, confState, Math.max(applied, raft.log.applied));
  if (!isEmptyHardState(hardState)) {
    raft.log.commitTo(hardState.commit);
    raft.term = hardState.term;
    raft.vote = hardState.vote;
  }
  if (applied > 0) {
    // Every applied entry is committed, even if the commit index was not written since.
    raft.log.commitTo(applied);
    raft.log.appliedTo(applied, 0);
  }
  raft.becomeFollower(raft.term, NO_NODE);
  raft.trace?.({
    kind: "started",
    ...raft.stamp,
    voters: voterIds(raft.tracker.config.voters),
    commit: raft.log.committed,
    applied: raft.log.applied,
    last,
  });
  return raft;
}
