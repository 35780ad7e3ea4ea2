import type { Command, StateMachine } from "@heddle/consensus/ports";
import type { ControlReply } from "@heddle/control/command";
import { type LogCommand, ReplicatedControl } from "@heddle/control/replicated-control";

/** Receives the state's hash after commands, so that replicas can be compared. */
export type AppliedWatcher = (commands: number, index: number, hash: () => string) => void;

/** The commands between two hashes of the state; one takes some microseconds. */
const HASH_EVERY = 4;
const PIECE_LENGTH = 2048;

/** The real replicated control state as the state machine of a simulated member. */
export class SimulatedMachine implements StateMachine<ControlReply> {
  readonly control: ReplicatedControl;
  /** Called with each applied entry, or with undefined where a snapshot has replaced the state. */
  onEntry: ((entry: LogCommand | undefined) => void) | undefined;
  /** Called with the state after each entry, from the machine's first one on. */
  watch: ((control: ReplicatedControl) => void) | undefined;
  readonly #onApplied: AppliedWatcher;
  /** For self-tests: forgets that requests were applied before. */
  readonly #forgetsRequests: boolean;

  /** `newest`: the highest cluster version of its build; this one's if undefined. */
  constructor(onApplied: AppliedWatcher, forgetsRequests: boolean, newest?: number) {
    this.control = new ReplicatedControl(newest);
    this.#onApplied = onApplied;
    this.#forgetsRequests = forgetsRequests;
  }

  apply(commands: readonly Command[]): Promise<readonly ControlReply[]> {
    const replies = commands.map(({ index, data }) => {
      const entry = this.#decode(data);
      const reply = this.control.apply(entry, index);
      this.watch?.(this.control);
      this.onEntry?.(entry);
      const { commands: count } = this.control;
      if (count % HASH_EVERY === 0) this.#onApplied(count, index, () => this.control.hash);
      return reply;
    });
    const last = commands.at(-1);
    if (last) this.#onApplied(this.control.commands, last.index, () => this.control.hash);
    return Promise.resolve(replies);
  }

  /** Chunks of some lines each, so that there are several and not too many. */
  snapshot(): Iterable<Uint8Array> {
    const lines = this.control.snapshot();
    return (function* () {
      let piece = "";
      for (const line of lines) {
        piece += `${line}\n`;
        if (piece.length < PIECE_LENGTH) continue;
        yield Buffer.from(piece);
        piece = "";
      }
      if (piece) yield Buffer.from(piece);
    })();
  }

  async restore(chunks: AsyncIterable<Uint8Array>): Promise<void> {
    await this.control.restore(texts(chunks));
    this.onEntry?.(undefined);
  }

  #decode(data: Uint8Array): LogCommand {
    const entry = decode(data);
    if (!this.#forgetsRequests || entry.type !== "control") return entry;
    return { type: "control", command: entry.command };
  }
}

export function encodeCommand(entry: LogCommand): Uint8Array {
  return Buffer.from(JSON.stringify(entry));
}

function decode(data: Uint8Array): LogCommand {
  return JSON.parse(Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString());
}

async function* texts(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string, void> {
  for await (const chunk of chunks) yield* Buffer.from(chunk).toString().trimEnd().split("\n");
}
