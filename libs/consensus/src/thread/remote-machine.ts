import type { AppError } from "@heddle/base/errors";
import type { Command, StateMachine } from "../ports.ts";
import { type MachineTask, packCommands } from "./thread-protocol.ts";

/** Bytes of commands that the main thread may have before it; more wait here. */
const MAX_AHEAD_BYTES = 2 * 1024 * 1024;
/**
 * How long commands gather that no caller on this master waits for; saves messages on followers.
 */
const GATHER_MS = 10;
const MAX_GATHERED_BYTES = 64 * 1024;

interface Waiter {
  resolve(chunk: Uint8Array | undefined): void;
  reject(error: AppError): void;
}

/**
 * The state machine as the Raft thread sees it: each call becomes a task for the main thread, where
 * the state is and replies stay. Commands count as applied when they are handed over, as whatever
 * is sent afterwards takes effect after them.
 */
export class RemoteMachine implements StateMachine<undefined> {
  readonly #post: (id: number, task: MachineTask) => void;
  readonly #waiting = new Map<number, Waiter>();
  #gathered: Command[] = [];
  #gatheredBytes = 0;
  #timer: NodeJS.Timeout | undefined;
  /** Bytes handed over that the main thread has not applied yet. */
  #aheadBytes = 0;
  #room: PromiseWithResolvers<void> | undefined;
  #failure: AppError | undefined;
  #nextTask = 1;
  #nextSnapshot = 1;

  constructor(post: (id: number, task: MachineTask) => void) {
    this.#post = post;
  }

  async apply(commands: readonly Command[]): Promise<readonly undefined[]> {
    let isAwaited = false;
    for (const command of commands) {
      this.#gathered.push(command);
      this.#gatheredBytes += command.data.byteLength;
      isAwaited ||= command.proposal !== undefined;
    }
    if (isAwaited || this.#gatheredBytes > MAX_GATHERED_BYTES) this.handOver();
    else this.#timer ??= setTimeout(() => this.handOver(), GATHER_MS);
    while (this.#aheadBytes > MAX_AHEAD_BYTES && !this.#failure) {
      this.#room ??= Promise.withResolvers();
      await this.#room.promise;
    }
    if (this.#failure) throw this.#failure;
    return new Array<undefined>(commands.length);
  }

  /** Hands over the commands that were gathered, so that what is said next comes after them. */
  handOver(): void {
    if (this.#gathered.length === 0) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const commands = packCommands(this.#gathered);
    this.#gathered = [];
    this.#gatheredBytes = 0;
    this.#aheadBytes += commands.byteLength;
    this.#post(this.#nextTask++, { kind: "apply", commands });
  }

  snapshot(): AsyncIterable<Uint8Array> {
    const snapshot = this.#nextSnapshot++;
    // Requested now, so that the state is that of this call, whenever the pieces are read.
    const begun = this.#ask({ kind: "snapshot", snapshot });
    begun.catch(() => undefined);
    return this.#pieces(snapshot, begun);
  }

  async restore(chunks: AsyncIterable<Uint8Array>): Promise<void> {
    await this.#ask({ kind: "restore" });
    let complete = false;
    try {
      for await (const chunk of chunks) await this.#ask({ kind: "restoreNext", chunk });
      complete = true;
    } finally {
      await this.#ask({ kind: "restoreEnd", complete });
    }
  }

  /** Counts packed commands that the main thread has applied. */
  applied(bytes: number): void {
    this.#aheadBytes -= bytes;
    this.#wake();
  }

  /** Takes in the main thread's answer to a task. */
  answered(id: number, chunk: Uint8Array | undefined): void {
    this.#waiting.get(id)?.resolve(chunk);
    this.#waiting.delete(id);
  }

  /** Takes in that a task failed; true where that was `apply`, after which the state is unknown. */
  failed(id: number, error: AppError): boolean {
    const waiter = this.#waiting.get(id);
    this.#waiting.delete(id);
    waiter?.reject(error);
    if (waiter) return false;
    this.#failure = error;
    this.#wake();
    return true;
  }

  #wake(): void {
    this.#room?.resolve();
    this.#room = undefined;
  }

  async *#pieces(snapshot: number, begun: Promise<unknown>): AsyncGenerator<Uint8Array, void> {
    await begun;
    try {
      for (;;) {
        const chunk = await this.#ask({ kind: "snapshotNext", snapshot });
        if (!chunk) return;
        yield chunk;
      }
    } finally {
      await this.#ask({ kind: "snapshotEnd", snapshot });
    }
  }

  #ask(task: MachineTask): Promise<Uint8Array | undefined> {
    this.handOver();
    const id = this.#nextTask++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#post(id, task);
    });
  }
}
