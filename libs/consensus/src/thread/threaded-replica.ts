import { extname } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { OncePerTurn } from "@heddle/base/async/once-per-turn";
import { AppError, toAppError } from "@heddle/base/errors";
import type { Log } from "@heddle/observability/logger";
import type { ConfChange } from "@heddle/raft/membership/conf-change";
import { type NodeCredentials, toPlainCredentials } from "@heddle/rpc/credentials";
import type { Command, Member, StateMachine } from "../ports.ts";
import { MachineTasks } from "./machine-tasks.ts";
import {
  type FromThread,
  fromPlain,
  machineMs,
  packProposals,
  type RaftThreadOptions,
  type ThreadCall,
  type ThreadStatus,
  type ToThread,
} from "./thread-protocol.ts";

export interface ThreadedReplicaOptions<Reply> extends Omit<RaftThreadOptions, "credentials"> {
  /** With TLS the thread receives each renewal of the certificate. */
  readonly credentials: NodeCredentials;
  /** Lives on this thread, and is only called between turns of its event loop. */
  readonly machine: StateMachine<Reply>;
  readonly log: Log;
  /** The log cannot continue; the owner must end the process. While it is opened, `open` rejects instead. */
  readonly onFatal: (error: AppError) => void;
  /** See RaftReplica. */
  readonly onRemoved?: (() => void) | undefined;
}

interface Waiter<Result> {
  resolve(result: Result): void;
  reject(error: AppError): void;
}

/** Open proposals; more are refused with `overloaded`. The thread has a smaller limit of its own. */
const MAX_OPEN = 20_000;
/**
 * The thread posts its status each second; after this silence it counts as hung, for example on its disk.
 */
const SILENT_MS = 3_000;
/** An older status may predate another leader's election: this is below any election timeout. */
const FRESH_MS = 500;
/** How long a status waits for the thread's answer; after that the thread counts as hung. */
const STATUS_TIMEOUT_MS = 1_000;

/**
 * A Raft replica in a thread of its own, as the main thread sees it; messages of a turn of the
 * event loop cross together. Replies come from the state machine on this side, so that a proposal
 * costs at most two crossings.
 */
export class ThreadedReplica<Reply> {
  readonly #worker: Worker;
  readonly #options: ThreadedReplicaOptions<Reply>;
  readonly #tasks: MachineTasks<Reply>;
  readonly #opened = Promise.withResolvers<number>();
  readonly #proposals = new Map<number, Waiter<Reply>>();
  readonly #calls = new Map<number, Waiter<void>>();
  readonly #forgetRenewals: (() => void) | undefined;
  #nextProposal = 1;
  #nextCall = 1;
  #outgoing: ToThread[] = [];
  /** Not in a microtask: each event has its own, and calls that come together share one message. */
  readonly #nextFlush = new OncePerTurn(() => this.#flush());
  #commands: Uint8Array[] = [];
  /** The number of the first of them. */
  #firstCommand = 1;
  /** Reads of one turn share a question; those that come while it is asked share the next one. */
  #read: Promise<void> | undefined;
  #status: ThreadStatus | undefined;
  /** The latest term in which the state here had all that the leader of that term must know. */
  #activeTerm = 0;
  /** When the thread last sent a message; of the monotonic clock. */
  #lastMessageAtMs = performance.now();
  /** The time of the newest status, by `machineMs`. */
  #statusAtMs = Number.NEGATIVE_INFINITY;
  /** The index of the last entry that was applied here, and whether that is behind the group's. */
  #applied = 0;
  #isBehind = false;
  #fault: AppError | undefined;
  #isOpen = false;
  #stopping = false;

  private constructor(options: ThreadedReplicaOptions<Reply>) {
    const { machine, log, onFatal, onRemoved, credentials, ...rest } = options;
    const { tls } = credentials;
    const workerData = { ...rest, credentials: toPlainCredentials(credentials) };
    this.#options = options;
    const path = `./raft-thread${extname(import.meta.url)}`;
    this.#worker = new Worker(new URL(path, import.meta.url), {
      workerData: workerData satisfies RaftThreadOptions,
      name: "raft",
    });
    this.#forgetRenewals = tls?.onUpdate(() => {
      this.#post({ kind: "certificate", material: tls.material });
    });
    this.#tasks = new MachineTasks(
      machine,
      (commands, replies) => this.#onApplied(commands, replies),
      (answer) => this.#post(answer),
      (error) => this.#fail(error),
    );
    this.#worker.on("message", (messages: readonly FromThread[]) => {
      this.#lastMessageAtMs = performance.now();
      for (const message of messages) this.#take(message);
    });
    this.#worker.on("error", (error) => this.#fail(toAppError(error)));
    this.#worker.on("exit", () => {
      if (!this.#stopping) this.#fail(new AppError("server_error", "the Raft thread has ended"));
    });
  }

  /** Resolves when the state is recovered and the others can connect; rejects as the replica does. */
  static async open<Reply>(
    options: ThreadedReplicaOptions<Reply>,
  ): Promise<{ readonly replica: ThreadedReplica<Reply>; readonly port: number }> {
    const replica = new ThreadedReplica(options);
    try {
      return { replica, port: await replica.#opened.promise };
    } catch (error) {
      replica.#stopping = true;
      await replica.#worker.terminate();
      throw error;
    }
  }

  get fault(): AppError | undefined {
    return this.#fault;
  }

  get members(): readonly Member[] {
    return this.status().roster;
  }

  get nextMemberId(): number {
    return this.status().nextMemberId;
  }

  /**
   * As of at most one tick ago; changes of role, leader and members come at once. While the thread
   * hangs, the status may be old: that counts as being behind.
   */
  status(): ThreadStatus {
    if (!this.#status) throw new Error("the replica is used before it was opened");
    const { commit, isActiveLeader, term } = this.#status;
    return {
      ...this.#status,
      isActiveLeader: isActiveLeader && this.#activeTerm === term,
      isBehind: this.#isBehind || performance.now() - this.#lastMessageAtMs > SILENT_MS,
      commit: Math.max(commit, this.#applied),
      applied: this.#applied,
    };
  }

  /**
   * The same, refreshed where this process may have been paused: a status from before the pause may be stale.
   */
  async statusAfterPauses(): Promise<ThreadStatus> {
    const isFresh = () => machineMs() - this.#statusAtMs <= FRESH_MS;
    const status = this.status();
    if (status.isBehind || status.members.length === 1 || isFresh()) return status;
    await Promise.race([
      this.refresh().catch(() => undefined),
      delay(STATUS_TIMEOUT_MS, undefined, { ref: false }),
    ]);
    const { isBehind, ...rest } = this.status();
    return { ...rest, isBehind: isBehind || !isFresh() };
  }

  /** Resolves when `status` is as of now. */
  async refresh(): Promise<void> {
    const askedAtMs = machineMs();
    await this.#call({ kind: "refresh" });
    this.#statusAtMs = Math.max(this.#statusAtMs, askedAtMs);
  }

  /** See RaftReplica.propose. */
  propose(command: Uint8Array): Promise<Reply> {
    if (this.#fault) return Promise.reject(this.#fault);
    if (this.#proposals.size >= MAX_OPEN) {
      const message = `${this.#proposals.size} changes are on their way already.`;
      return Promise.reject(new AppError("overloaded", message, { retryAfterMs: 1000 }));
    }
    const number = this.#nextProposal++;
    if (this.#commands.push(command) === 1) this.#firstCommand = number;
    this.#nextFlush.request();
    return new Promise((resolve, reject) => this.#proposals.set(number, { resolve, reject }));
  }

  /** See RaftReplica.readBarrier. */
  readBarrier(): Promise<void> {
    this.#read ??= Promise.resolve().then(() => {
      this.#read = undefined;
      return this.#call({ kind: "readBarrier" });
    });
    return this.#read;
  }

  /** See RaftReplica.changeMembers. */
  changeMembers(changes: ConfChange["changes"], members: readonly Member[] = []): Promise<void> {
    return this.#call({ kind: "changeMembers", changes, members });
  }

  /** Asks for leadership to go to a member; whether it went shows in the status. */
  transferLeadership(to: number): void {
    this.#post({ kind: "transfer", to });
  }

  takeSnapshot(): Promise<void> {
    return this.#call({ kind: "takeSnapshot" });
  }

  /** See RaftReplica.renewLog. */
  renewLog(): Promise<void> {
    return this.#call({ kind: "renewLog" });
  }

  /** Ends it in good order; what is under way is rejected. */
  async stop(): Promise<void> {
    if (!this.#fault) await this.#call({ kind: "stop" }).catch(() => undefined);
    this.#stopping = true;
    this.#end(new AppError("unavailable", "this master is shutting down"));
    await this.#worker.terminate();
  }

  #call(call: ThreadCall): Promise<void> {
    if (this.#fault) return Promise.reject(this.#fault);
    const id = this.#nextCall++;
    this.#post({ kind: "call", id, call });
    return new Promise((resolve, reject) => this.#calls.set(id, { resolve, reject }));
  }

  #post(message: ToThread): void {
    this.#outgoing.push(message);
    this.#nextFlush.request();
  }

  #flush(): void {
    const messages = this.#outgoing;
    const transfer: ArrayBuffer[] = [];
    if (this.#commands.length > 0) {
      const { id: node, incarnation } = this.#options.identity;
      const first = this.#firstCommand;
      const proposals = packProposals(this.#commands, { node, incarnation, sequence: first });
      messages.push({ kind: "propose", first, proposals });
      transfer.push(proposals.buffer);
    }
    this.#outgoing = [];
    this.#commands = [];
    if (messages.length > 0) this.#worker.postMessage(messages, transfer);
  }

  #take(message: FromThread): void {
    switch (message.kind) {
      case "task":
        this.#tasks.take(message.id, message.task);
        break;
      case "status":
        this.#onStatus(message.status, message.atMs);
        break;
      case "rejected":
        this.#settle(this.#proposals, message.proposal, fromPlain(message.error));
        break;
      case "reply":
        // What the thread counts as applied may still wait for its turn here.
        this.#tasks.afterwards(() => {
          this.#reply(message.id, message.error && fromPlain(message.error));
        });
        break;
      case "opened":
        this.#tasks.afterwards(() => {
          this.#isOpen = true;
          this.#opened.resolve(message.port);
        });
        break;
      case "openFailed":
        this.#opened.reject(fromPlain(message.error));
        break;
      case "fatal":
        this.#fail(fromPlain(message.error));
        break;
      case "removed":
        this.#options.onRemoved?.();
        break;
      case "log":
        this.#options.log[message.level](message.fields, message.message);
        break;
      default:
        message satisfies never;
    }
  }

  /**
   * Entries that the thread counts as applied may still be queued here.
   * A lost lead, and being behind, count at once; the opposite once the queue is applied.
   */
  #onStatus(status: ThreadStatus, atMs: number): void {
    this.#status = status;
    this.#statusAtMs = atMs;
    this.#isBehind ||= status.isBehind;
    this.#tasks.afterwards(() => {
      this.#applied = Math.max(this.#applied, status.applied);
      if (this.#status === status) this.#isBehind = status.isBehind;
      if (status.isActiveLeader) this.#activeTerm = status.term;
    });
  }

  #onApplied(commands: readonly Command[], replies: readonly Reply[]): void {
    for (let at = 0; at < commands.length; at++) {
      const { proposal } = commands[at] as Command;
      if (proposal === undefined) continue;
      this.#proposals.get(proposal)?.resolve(replies[at] as Reply);
      this.#proposals.delete(proposal);
    }
    this.#applied = Math.max(this.#applied, commands.at(-1)?.index ?? 0);
  }

  #reply(id: number, error: AppError | undefined): void {
    if (error) this.#settle(this.#calls, id, error);
    else this.#calls.get(id)?.resolve();
    this.#calls.delete(id);
  }

  #settle(waiters: Map<number, Waiter<never>>, id: number, error: AppError): void {
    waiters.get(id)?.reject(error);
    waiters.delete(id);
  }

  #fail(error: AppError): void {
    if (this.#fault) return;
    this.#opened.reject(error);
    this.#end(error);
    if (this.#isOpen && !this.#stopping) this.#options.onFatal(error);
  }

  #end(fault: AppError): void {
    this.#fault ??= fault;
    this.#forgetRenewals?.();
    for (const waiter of [...this.#proposals.values(), ...this.#calls.values()]) {
      waiter.reject(fault);
    }
    this.#proposals.clear();
    this.#calls.clear();
  }
}
