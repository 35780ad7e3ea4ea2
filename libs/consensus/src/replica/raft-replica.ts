import { OncePerTurn } from "@heddle/base/async/once-per-turn";
import { SerialQueue } from "@heddle/base/async/serial-queue";
import { AppError, toAppError } from "@heddle/base/errors";
import { APPEND_THREAD, isStorageThread, type Message } from "@heddle/raft/core/message";
import { EMPTY_CONF_STATE, NO_NODE, type Snapshot } from "@heddle/raft/core/state";
import type { Entry } from "@heddle/raft/log/entry";
import { type ConfChange, encodeConfChange } from "@heddle/raft/membership/conf-change";
import { RawNode } from "@heddle/raft/raw-node";
import type { SnapshotMeta } from "@heddle/storage/snapshot-store";
import { closedOnFailure } from "@heddle/storage/storage-files";
import type { Member } from "../ports.ts";
import { encodeProposal, type ProposalId } from "../proposals/entry-codec.ts";
import { PendingProposals, type ProposalWaiter } from "../proposals/pending-proposals.ts";
import { PendingReads } from "../proposals/pending-reads.ts";
import { isRefusal, ProposalForwarder, refusalOf } from "../proposals/proposal-forwarder.ts";
import { SnapshotSender } from "../snapshots/snapshot-sender.ts";
import { SnapshotTaker } from "../snapshots/snapshot-taker.ts";
import { Applier } from "./applier.ts";
import { DurableLog } from "./durable-log.ts";
import { JointChanges } from "./joint-changes.ts";
import { learnerToPromote } from "./learner-promotion.ts";
import { lostLog, shortLog } from "./lost-log.ts";
import { encodeContext, firstMembership, Membership, type MembershipState } from "./membership.ts";
import type { ReplicaOptions } from "./replica-options.ts";
import { describeReplica, type RaftReplicaStatus } from "./replica-status.ts";
import { ReplicationLag } from "./replication-lag.ts";
import { StaleReadGuard } from "./stale-read-guard.ts";

/** Bytes that are applied at a time: bounds how long the state machine holds the loop. */
const MAX_APPLYING_BYTES = 256 * 1024;

/** Bytes of applied entries after which a snapshot is taken. */
const SNAPSHOT_BYTES = 64 * 2 ** 20;

/**
 * One member of a replicated group: it drives a Raft node over a log, a transport and a state
 * machine. It reads no clock and draws no random number: time comes in by `tick`.
 *
 * - Messages that promise something leave when what they promise is on the disk.
 * - Committed entries are applied in order.
 * - A proposal is answered when it was applied here.
 */
export class RaftReplica<Reply> {
  readonly #options: ReplicaOptions<Reply>;
  readonly #log: DurableLog;
  readonly #raw: RawNode;
  readonly #proposals = new PendingProposals<Reply>();
  readonly #changes = new PendingProposals<void>();
  readonly #jointChanges = new JointChanges(() => this.#applier.membership.isJoint);
  readonly #pending = [this.#proposals, this.#changes, this.#jointChanges];
  readonly #handOvers: ProposalForwarder;
  readonly #reads: PendingReads;
  readonly #catchUp: ReplicationLag;
  readonly #absence: StaleReadGuard;
  readonly #applier: Applier<Reply>;
  readonly #snapshots: SnapshotTaker;
  readonly #snapshotSender: SnapshotSender;
  #tick = 0;
  /** Before it no learner is made a voter: the last attempt needs time to be applied. */
  #nextPromotionTick = 0;
  #nextSequence = 1;
  /** Writes on their way to the disk. */
  #writing = 0;
  /** Appends are acknowledged, and entries applied, one after the other. */
  readonly #writes = new SerialQueue();
  readonly #applies = new SerialQueue();
  #receiving = false;
  /** Requests of one turn of the event loop go out together. */
  readonly #nextPump = new OncePerTurn(() => this.#pump(), queueMicrotask);
  #removed = false;
  #stopped: AppError | undefined;

  private constructor(options: ReplicaOptions<Reply>, log: DurableLog, membership: Membership) {
    this.#options = options;
    this.#log = log;
    this.#reads = new PendingReads(options.incarnation);
    this.#handOvers = new ProposalForwarder(options);
    this.#catchUp = new ReplicationLag(options.electionTicks);
    this.#absence = new StaleReadGuard(options, () => this.readBarrier());
    this.#raw = new RawNode({
      id: options.id,
      electionTicks: options.electionTicks,
      heartbeatTicks: options.heartbeatTicks,
      storage: log.memory,
      random: options.random,
      applied: log.snapshotIndex,
      asyncStorageWrites: true,
      maxApplyingBytes: MAX_APPLYING_BYTES,
      trace: options.trace,
    });
    this.#applier = new Applier(
      {
        own: { node: options.id, incarnation: options.incarnation },
        log,
        machine: options.machine,
        proposals: this.#proposals,
        changes: this.#changes,
        applyConfChange: (change, index) => this.#raw.applyConfChange(change, index),
        onMembersChanged: () => this.#membersChanged(),
      },
      membership,
    );
    this.#snapshots = new SnapshotTaker({
      log,
      applier: this.#applier,
      snapshotEntries: options.snapshotEntries ?? 10_000,
      snapshotBytes: options.snapshotBytes ?? SNAPSHOT_BYTES,
      betweenBatches: (run) => this.#applies.run(run),
      isStopped: () => this.#stopped !== undefined,
      fail: (error) => this.#fail(error),
    });
    this.#snapshotSender = new SnapshotSender(log, options.transport, this.#snapshots);
  }

  /** Recovers the member's state; see DurableLog.open for how it rejects. */
  static async open<Reply>(options: ReplicaOptions<Reply>): Promise<RaftReplica<Reply>> {
    let membership = new Membership({ confState: EMPTY_CONF_STATE, members: [], lastId: 0 });
    const restore = async (meta: SnapshotMeta, chunks: AsyncIterable<Uint8Array>) => {
      await options.machine.restore(chunks);
      membership = new Membership(meta.detail as MembershipState);
    };
    const log = await DurableLog.open({ ...options.storage, restore });
    if (log.isEmpty && options.firstMembers) {
      const first = firstMembership(options.firstMembers);
      await closedOnFailure(log, () => log.bootstrap(first, options.machine.snapshot()));
      membership = new Membership(first);
    }
    if (log.isEmpty && !options.isJoining) {
      await log.close();
      throw lostLog(options.storage.directory);
    }
    const replica = new RaftReplica(options, log, membership);
    // A joining member has none yet, and what its transport knows must do.
    if (membership.members.length > 0) replica.#membersChanged();
    // The only voter need not wait for anyone's silence.
    const { voters } = membership.confState ?? EMPTY_CONF_STATE;
    if (voters.length === 1 && voters[0] === options.id) replica.#raw.campaign();
    replica.#pump();
    return replica;
  }

  get fault(): AppError | undefined {
    return this.#stopped;
  }

  get members(): readonly Member[] {
    return this.#applier.membership.members;
  }

  get nextMemberId(): number {
    return this.#applier.membership.nextId;
  }

  status(): RaftReplicaStatus {
    const { index: applied, term: appliedTerm } = this.#applier.applied;
    return describeReplica(this.#raw.status(), this.#applier.membership, {
      applied,
      appliedTerm,
      snapshotIndex: this.#log.snapshotIndex,
      isBehind: this.#absence.lasts || this.#catchUp.isBehind(applied, this.#tick),
      isMemberBehind: (id, match) => this.#catchUp.isMemberBehind(id, match, this.#tick),
    });
  }

  /** Moves time on; many ticks at once mean that the process did not run. */
  tick(elapsedTicks = 1): void {
    if (this.#stopped) return;
    this.#tick += elapsedTicks;
    this.#absence.tick(elapsedTicks);
    this.#pump(() => {
      this.#raw.tick(elapsedTicks);
      for (const pending of this.#pending) pending.rejectExpired(this.#tick);
      this.#reads.tick(this.#tick, this.#options.electionTicks);
      this.#catchUp.update(this.#raw.status(), this.#tick);
      if (this.#tick >= this.#nextPromotionTick) this.#promoteLearner();
    });
  }

  /** Takes in messages from other members. Never throws: what breaks the core's promises is fatal. */
  receive(messages: readonly Message[]): void {
    this.#pump(() => {
      for (const message of messages) this.#stepFromMember(message);
    });
  }

  #stepFromMember(message: Message): void {
    try {
      this.#catchUp.onHeartbeat(message, this.#applier.applied.index, this.#tick);
      if (isRefusal(message)) this.#takeBack(message);
      else if (!this.#raw.step(message).ok) this.#sendBack(message);
    } catch (error) {
      const last = this.#log.memory.lastIndex();
      // A heartbeat's commit index is at most what this member acknowledged.
      if (message.type !== "MsgHeartbeat" || message.commit <= last) throw error;
      throw shortLog(this.#options.storage.directory, { commit: message.commit, last }, error);
    }
  }

  /** Returns a batch of proposals that was dropped here, or could not leave, to its proposer. */
  #sendBack(message: Message): void {
    const refusal = refusalOf(message);
    if (!refusal) return;
    if (refusal.to === this.#options.id) this.#takeBack(refusal);
    else this.#options.transport.send(refusal.to, [refusal]);
  }

  #takeBack(refusal: Message): void {
    const number = this.#handOvers.takeBack(refusal, this.#raw.basicStatus, this.#tick);
    if (number === undefined) return;
    for (const pending of [this.#proposals, this.#changes]) pending.takeBack(number);
  }

  /** Takes in a snapshot from the leader; resolves when it is on the disk and handed to Raft. */
  async receiveSnapshot(
    message: Message,
    meta: SnapshotMeta,
    chunks: AsyncIterable<Uint8Array>,
  ): Promise<void> {
    if (this.#stopped) throw this.#stopped;
    if (this.#receiving) throw new AppError("overloaded", "a snapshot is being received already");
    if (message.snapshot?.index !== meta.index || message.snapshot.term !== meta.term) {
      throw new AppError("invalid_value", "the snapshot is not the one that its message names");
    }
    this.#receiving = true;
    try {
      await this.#log.snapshots.write(meta, chunks);
    } finally {
      this.#receiving = false;
    }
    this.receive([message]);
  }

  /**
   * Resolves with the state machine's reply once the command is committed and applied here.
   * Rejects with `unavailable` or `overloaded` where it is not made, with `outcome_unknown` where that is unknown.
   * It is never proposed twice.
   */
  propose(command: Uint8Array): Promise<Reply> {
    const id = this.#nextId();
    const data = encodeProposal(id, command);
    return new Promise((resolve, reject) => {
      this.proposeAll(id.sequence, [data], { resolve, reject });
    });
  }

  /**
   * The same for commands in the form of `encodeProposal`, with consecutive sequence numbers from `first` on.
   * Applied commands carry those numbers; the caller gives all numbers itself, and none twice.
   */
  proposeAll(first: number, batch: readonly Uint8Array[], waiter: ProposalWaiter<Reply>): void {
    const deadline = this.#deadline();
    let sequence = first;
    for (const data of batch) {
      if (this.#stopped) waiter.reject(this.#stopped, sequence);
      else this.#proposals.add(sequence, { type: "EntryNormal", data }, deadline, waiter);
      sequence++;
    }
    this.#nextPump.request();
  }

  /** Resolves once this replica's state holds everything committed before the call. */
  readBarrier(): Promise<void> {
    if (this.#stopped) return Promise.reject(this.#stopped);
    const read = this.#reads.add(this.#deadline());
    this.#nextPump.request();
    return read;
  }

  /**
   * Changes the membership; `members` are those that join. Resolves once it is complete here; rejects as `propose` does.
   * The other members learn of the completion with the leader's next message.
   * If the leader is lost before, they still count the removed members.
   */
  changeMembers(changes: ConfChange["changes"], members: readonly Member[] = []): Promise<void> {
    if (this.#stopped) return Promise.reject(this.#stopped);
    const proposal = this.#nextId();
    const context = encodeContext(proposal, members);
    const payload = encodeConfChange({ transition: "auto", changes, context });
    const deadline = this.#deadline();
    return new Promise((resolve, reject) => {
      const waiter = this.#jointChanges.complete({ resolve, reject }, deadline);
      this.#changes.add(proposal.sequence, payload, deadline, waiter);
      this.#nextPump.request();
    });
  }

  /** Asks for leadership to go to a member; whether it went shows in the status. */
  transferLeadership(to: number): void {
    this.#pump(() => void this.#raw.transferLeader(to));
  }

  /**
   * Takes a snapshot of the state as of now and drops the log before it. Where nothing is new it makes
   * sure that the newest one can be read.
   */
  async takeSnapshot(): Promise<void> {
    const { index, term } = this.#log.memory.snapshot();
    await this.#snapshots.take();
    if (index === 0 || this.#log.snapshotIndex > index) return;
    await this.#snapshotSender.repair({ index, term }).catch((error: unknown) => this.#fail(error));
  }

  /** Has the log continue in new files: those before are removed once a snapshot has replaced them. */
  async renewLog(): Promise<void> {
    await this.#log.renewFiles().catch((error: unknown) => this.#fail(error));
  }

  /** Ends it in good order; what is under way is rejected. */
  async stop(): Promise<void> {
    this.#end(new AppError("unavailable", "this master is shutting down"));
    await this.#writes.idle();
    await this.#applies.idle();
    await this.#snapshots.settle();
    await this.#log.close();
  }

  #nextId(): ProposalId {
    const { id: node, incarnation } = this.#options;
    return { node, incarnation, sequence: this.#nextSequence++ };
  }

  #deadline(): number {
    return this.#tick + this.#options.requestTicks;
  }

  /** Resolves when all that is known to be committed by now is applied, or nothing more will be. */
  async settle(): Promise<void> {
    const { commit } = this.#raw.status();
    while (this.#applier.applied.index < commit && !this.#stopped) {
      await this.#applies.idle();
      await this.#options.yieldToLoop();
    }
  }

  /**
   * Runs the input and processes every Ready. A failure ends the replica; it is not thrown to the caller.
   */
  #pump(input?: () => void): void {
    if (this.#stopped) return;
    try {
      input?.();
      do {
        while (this.#raw.hasReady()) this.#processReady();
      } while (this.#handOverRequests());
    } catch (error) {
      this.#fail(error);
    }
  }

  #processReady(): void {
    const { messages, readStates } = this.#raw.ready();
    for (const read of readStates) this.#reads.answered(read);
    // What may leave at once leaves first, so that the members write while this one does.
    this.#send(messages.filter(({ to }) => !isStorageThread(to)));
    for (const message of messages) {
      if (!isStorageThread(message.to)) continue;
      if (message.to === APPEND_THREAD) this.#write(message);
      else this.#queueApply(message);
    }
    this.#reads.applied(this.#applier.applied.index);
  }

  /** Hands waiting requests to Raft; true if that made work. */
  #handOverRequests(): boolean {
    const { lead, term, role } = this.#raw.basicStatus;
    if (lead === NO_NODE) return false;
    if (this.#reads.hasWaiting) {
      this.#reads.ask(this.#tick, (context) => this.#raw.readIndex(context).ok);
    }
    if (this.#handOvers.isHeld({ lead, term }, this.#tick)) return this.#raw.hasReady();
    const changed = this.#changes.hasWaiting && this.#changes.handOver(term, this.#stepProposal);
    // On a leader whose disk is busy they gather, so that the next write takes all of them.
    const mayPropose = this.#proposals.hasWaiting && (role !== "leader" || this.#writing === 0);
    const proposed = mayPropose && this.#proposals.handOver(term, this.#stepProposal);
    return changed || proposed || this.#raw.hasReady();
  }

  readonly #stepProposal = (entries: readonly Entry[]): number | undefined => {
    const { number, message } = this.#handOvers.next(entries);
    return this.#raw.step(message).ok ? number : undefined;
  };

  #send(messages: readonly Message[]): void {
    const { commit } = this.#raw.basicStatus;
    const byKind = Map.groupBy(messages, ({ type, to }) => (type === "MsgSnap" ? NO_NODE : to));
    for (const [to, batch] of byKind) {
      if (to === NO_NODE) for (const message of batch) this.#sendSnapshot(message);
      else if (!this.#options.transport.send(to, this.#catchUp.annotate(batch, commit))) {
        this.#raw.reportUnreachable(to);
        for (const message of batch) this.#sendBack(message);
      }
    }
  }

  #sendSnapshot(message: Message): void {
    this.#snapshotSender.send(message).then(
      (outcome) => this.#pump(() => this.#raw.reportSnapshot(message.to, outcome)),
      (error: unknown) => this.#fail(error),
    );
  }

  #write(message: Message): void {
    this.#writing++;
    const written = this.#log.write(message);
    written.catch(() => undefined); // Met below, in its turn.
    const inTurn = async () => {
      await written;
      if (message.snapshot) await this.#restore(message.snapshot);
      this.#writing--;
      this.#respond(message.responses);
    };
    this.#writes.run(inTurn).catch((error: unknown) => this.#fail(error));
  }

  /** Delivers what waited for a write or for entries to be applied. */
  #respond(responses: readonly Message[]): void {
    if (this.#stopped) return;
    const outgoing: Message[] = [];
    for (const response of responses) {
      if (response.to === this.#options.id) this.#raw.step(response);
      else outgoing.push(response);
    }
    this.#send(outgoing);
    this.#pump();
  }

  /** Puts a snapshot that Raft has taken in into the state's place, in its turn. */
  #restore(snapshot: Snapshot): Promise<void> {
    return this.#applies.run(() => this.#applier.restore(snapshot));
  }

  #queueApply(message: Message): void {
    this.#applies.run(() => this.#apply(message)).catch((error: unknown) => this.#fail(error));
  }

  async #apply({ entries, responses }: Message): Promise<void> {
    if (this.#stopped) return;
    await this.#applier.apply(entries);
    this.#reads.applied(this.#applier.applied.index);
    this.#respond(responses);
    this.#snapshots.maybeTake();
    await this.#options.yieldToLoop();
  }

  #membersChanged(): void {
    const others = this.#applier.membership.members.filter(({ id }) => id !== this.#options.id);
    this.#options.transport.setMembers(others);
    this.#jointChanges.membersChanged();
    if (this.#removed || !this.#applier.membership.wasRemoved(this.#options.id)) return;
    this.#removed = true;
    this.#options.onRemoved?.();
  }

  /** Learners become voters when they have caught up; so a new member never holds up a majority. */
  #promoteLearner(): void {
    if (this.#raw.basicStatus.role !== "leader") return;
    const { confState } = this.#applier.membership;
    const id = confState && learnerToPromote(this.#raw.status(), confState);
    if (id === undefined || this.#changes.hasWaiting) return;
    this.#nextPromotionTick = this.#tick + this.#options.electionTicks;
    const changes = [{ type: "addNode" as const, nodeId: id }];
    this.#raw.proposeConfChange({ transition: "auto", changes, context: new Uint8Array(0) });
  }

  #fail(error: unknown): void {
    if (this.#stopped) return;
    const fault = toAppError(error);
    this.#end(fault);
    this.#options.onFatal(fault);
  }

  #end(fault: AppError): void {
    if (this.#stopped) return;
    this.#stopped = fault;
    for (const pending of [...this.#pending, this.#reads]) pending.rejectAll(fault.message);
  }
}
