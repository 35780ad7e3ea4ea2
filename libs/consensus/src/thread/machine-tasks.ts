import { setImmediate as nextTurn } from "node:timers/promises";
import { SerialQueue } from "@heddle/base/async/serial-queue";
import { type AppError, toAppError } from "@heddle/base/errors";
import type { Command, StateMachine } from "../ports.ts";
import { type MachineTask, type ToThread, toPlain, unpackCommands } from "./thread-protocol.ts";

/** Applied bytes are reported in steps of this size, far below the Raft thread's bound. */
const REPORT_BYTES = 256 * 1024;
/** How long commands that come together may hold the event loop. */
const TURN_MS = 10;

/** Called with applied commands, and a reply for each. */
export type Applied<Reply> = (commands: readonly Command[], replies: readonly Reply[]) => void;

/**
 * The main thread's half of the state machine: works off the Raft thread's tasks, one after the
 * other, and answers each.
 */
export class MachineTasks<Reply> {
  readonly #machine: StateMachine<Reply>;
  readonly #onApplied: Applied<Reply>;
  readonly #answer: (answer: ToThread) => void;
  readonly #onBroken: (error: AppError) => void;
  readonly #snapshots = new Map<number, AsyncIterator<Uint8Array> | Iterator<Uint8Array>>();
  #restoring: Restoring | undefined;
  readonly #tasks = new SerialQueue();
  /** Applied and not reported yet. */
  #unreportedBytes = 0;
  /** What applying took since the event loop last ran. */
  #busyMs = 0;

  /** `onBroken` is called when commands could not be applied, after which the state is unknown. */
  constructor(
    machine: StateMachine<Reply>,
    onApplied: Applied<Reply>,
    answer: (answer: ToThread) => void,
    onBroken: (error: AppError) => void = () => undefined,
  ) {
    this.#machine = machine;
    this.#onApplied = onApplied;
    this.#answer = answer;
    this.#onBroken = onBroken;
  }

  /** Queues a task; its answer goes out when it and all before it are done. */
  take(id: number, task: MachineTask): void {
    this.#tasks
      .run(() => (task.kind === "apply" ? this.#apply(task.commands) : this.#do(id, task)))
      .catch((thrown: unknown) => {
        const error = toAppError(thrown);
        // Before what waits for the state to be as of now: it never will be.
        if (task.kind === "apply") this.#onBroken(error);
        this.#answer({ kind: "failed", id, error: toPlain(error) });
      });
  }

  /** Calls back when all tasks that were taken before are done. */
  afterwards(callback: () => void): void {
    void this.#tasks.run(callback);
  }

  async #apply(packed: Uint8Array): Promise<void> {
    const commands = unpackCommands(packed);
    const startedMs = performance.now();
    this.#onApplied(commands, await this.#machine.apply(commands));
    this.#busyMs += performance.now() - startedMs;
    if (this.#busyMs > TURN_MS) {
      this.#busyMs = 0;
      await nextTurn();
    }
    this.#unreportedBytes += packed.byteLength;
    if (this.#unreportedBytes < REPORT_BYTES) return;
    this.#answer({ kind: "applied", bytes: this.#unreportedBytes });
    this.#unreportedBytes = 0;
  }

  async #do(id: number, task: Exclude<MachineTask, { kind: "apply" }>): Promise<void> {
    const chunk = await this.#perform(task);
    this.#answer({ kind: "done", id, chunk });
  }

  async #perform(task: Exclude<MachineTask, { kind: "apply" }>): Promise<Uint8Array | undefined> {
    switch (task.kind) {
      case "snapshot":
        this.#snapshots.set(task.snapshot, iteratorOf(this.#machine.snapshot()));
        return undefined;
      case "snapshotNext": {
        const next = await this.#snapshots.get(task.snapshot)?.next();
        return next && !next.done ? next.value : undefined;
      }
      case "snapshotEnd":
        await this.#snapshots.get(task.snapshot)?.return?.();
        this.#snapshots.delete(task.snapshot);
        return undefined;
      case "restore":
        this.#restoring = new Restoring(this.#machine);
        return undefined;
      case "restoreNext":
        await this.#restoring?.next(task.chunk);
        return undefined;
      case "restoreEnd":
        await this.#restoring?.end(task.complete);
        return undefined;
      default:
        return task satisfies never;
    }
  }
}

/** A snapshot on its way into the state machine, piece by piece. */
class Restoring {
  readonly #done: Promise<void>;
  #given = Promise.withResolvers<IteratorResult<Uint8Array>>();
  #taken = Promise.withResolvers<void>();

  constructor(machine: StateMachine<unknown>) {
    this.#done = machine.restore({ [Symbol.asyncIterator]: () => ({ next: () => this.#pull() }) });
    // The next `next` or `end` reports these errors.
    this.#done.catch(() => undefined);
    this.#given.promise.catch(() => undefined);
  }

  /** Resolves when the state machine wants the piece after this one; rejects if it gave up. */
  async next(chunk: Uint8Array): Promise<void> {
    this.#given.resolve({ done: false, value: chunk });
    await Promise.race([this.#taken.promise, this.#done]);
  }

  /** Resolves when the state is replaced. */
  async end(complete: boolean): Promise<void> {
    if (complete) this.#given.resolve({ done: true, value: undefined });
    else this.#given.reject(new Error("the snapshot could not be read to its end"));
    await (complete ? this.#done : this.#done.catch(() => undefined));
  }

  async #pull(): Promise<IteratorResult<Uint8Array>> {
    const piece = await this.#given.promise;
    this.#given = Promise.withResolvers();
    this.#given.promise.catch(() => undefined);
    this.#taken.resolve();
    this.#taken = Promise.withResolvers();
    return piece;
  }
}

function iteratorOf(
  chunks: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
): AsyncIterator<Uint8Array> | Iterator<Uint8Array> {
  return Symbol.asyncIterator in chunks
    ? chunks[Symbol.asyncIterator]()
    : chunks[Symbol.iterator]();
}
