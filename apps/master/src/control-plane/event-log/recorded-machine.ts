import type { Command, StateMachine } from "@heddle/consensus/ports";
import type { ControlReply } from "@heddle/control/command";
import type { EventLogWriter } from "./event-log-writer.ts";

type InnerMachine = Omit<StateMachine<ControlReply>, "snapshot"> & {
  snapshot(): Iterable<Uint8Array>;
};

/**
 * The state machine of a master that keeps events. A snapshot ends when all events of the log before
 * it are on the disk, since that part of the log is then dropped.
 */
export class RecordedMachine implements StateMachine<ControlReply> {
  readonly #machine: InnerMachine;
  readonly #events: Pick<EventLogWriter, "room" | "flushed">;

  constructor(machine: InnerMachine, events: Pick<EventLogWriter, "room" | "flushed">) {
    this.#machine = machine;
    this.#events = events;
  }

  async apply(commands: readonly Command[]): Promise<readonly ControlReply[]> {
    const replies = await this.#machine.apply(commands);
    await this.#events.room();
    return replies;
  }

  snapshot(): AsyncIterable<Uint8Array> {
    const pieces = this.#machine.snapshot()[Symbol.iterator]();
    const flushed = this.#events.flushed();
    const iterator = {
      next: async () => {
        const next = pieces.next();
        if (next.done) await flushed;
        return next;
      },
      // One that was not begun must let go of the state too.
      return: async () => pieces.return?.() ?? { done: true as const, value: undefined },
    };
    return { [Symbol.asyncIterator]: () => iterator };
  }

  restore(chunks: AsyncIterable<Uint8Array>): Promise<void> {
    return this.#machine.restore(chunks);
  }
}
