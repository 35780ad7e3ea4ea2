import { NO_SECRET_KEYS, type SecretKeys } from "@heddle/base/secret-keys";
import type { Command, StateMachine } from "@heddle/consensus/ports";
import type { ControlCommand, ControlReply } from "@heddle/control/command";
import { readCommand } from "@heddle/control/jobs/records/logged-command";
import { type LogCommand, ReplicatedControl } from "@heddle/control/replicated-control";
import { loadableBytes } from "../state-memory.ts";

/** A piece of a snapshot has at least this many bytes, but for the last. */
const CHUNK_BYTES = 64 * 1024;
const NEWLINE = 0x0a;

/** Called with each applied entry, or with undefined where a snapshot has replaced the state. */
export type AppliedListener = (entry: LogCommand | undefined) => void;

interface ControlMachineOptions {
  /** Called when a snapshot is begun. */
  readonly onSnapshot?: (() => void) | undefined;
  readonly newestVersion?: number | undefined;
  /** What the log and the snapshots are encrypted with, once the state says so. */
  readonly keys?: SecretKeys | undefined;
}

/** The replicated control state as the state machine of the log; entries are JSON, sealed or in clear. */
export class ControlMachine implements StateMachine<ControlReply> {
  readonly control: ReplicatedControl;
  readonly #onApplied: AppliedListener;
  readonly #options: ControlMachineOptions;
  readonly #keys: SecretKeys;

  constructor(onApplied: AppliedListener = () => undefined, options: ControlMachineOptions = {}) {
    this.control = new ReplicatedControl(options.newestVersion, loadableBytes());
    this.#onApplied = onApplied;
    this.#options = options;
    this.#keys = options.keys ?? NO_SECRET_KEYS;
  }

  /** The entry's bytes, sealed before it is proposed, so that no member writes secrets in clear to its log. */
  encode(entry: LogCommand): Uint8Array {
    const bytes = Buffer.from(JSON.stringify(entry));
    const { secretsKey } = this.control;
    return secretsKey === undefined ? bytes : this.#keys.seal(bytes, "log entry", secretsKey);
  }

  apply(commands: readonly Command[]): Promise<readonly ControlReply[]> {
    const replies = commands.map(({ index, data }) => {
      const entry = decodeLogCommand(this.#keys.open(data, "log entry"));
      const reply = this.control.apply(entry, index);
      this.#onApplied(entry);
      return reply;
    });
    return Promise.resolve(replies);
  }

  /** Lines of JSON, gathered into pieces, each of which is sealed for its place. */
  snapshot(): Iterable<Uint8Array> {
    this.#options.onSnapshot?.();
    const { secretsKey } = this.control;
    const lines = this.control.snapshot();
    const pieces = gather(lines);
    let number = 0;
    const iterator = {
      next: () => {
        const next = pieces.next();
        if (next.done || secretsKey === undefined) return next;
        return { value: this.#keys.seal(next.value, `snapshot ${number++}`, secretsKey) };
      },
      // One that was not begun must let go of the state too.
      return: () => lines.return?.() as IteratorResult<Uint8Array>,
    };
    return { [Symbol.iterator]: () => iterator };
  }

  async restore(chunks: AsyncIterable<Uint8Array>): Promise<void> {
    await this.control.restore(splitLines(this.#opened(chunks)));
    this.#onApplied(undefined);
  }

  async *#opened(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void> {
    let number = 0;
    for await (const chunk of chunks) yield this.#keys.open(chunk, `snapshot ${number++}`);
  }
}

function decodeLogCommand(data: Uint8Array): LogCommand {
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  return JSON.parse(bytes.toString("utf8")) as LogCommand;
}

function* gather(lines: Iterable<string>): Generator<Uint8Array, void> {
  let parts: Buffer[] = [];
  let bytes = 0;
  for (const line of lines) {
    const encoded = Buffer.from(`${line}\n`);
    // A long line goes in slices, since a piece of a snapshot has a largest size.
    for (let at = 0; at < encoded.length; at += CHUNK_BYTES) {
      const slice = encoded.subarray(at, at + CHUNK_BYTES);
      parts.push(slice);
      bytes += slice.length;
      if (bytes < CHUNK_BYTES) continue;
      yield Buffer.concat(parts);
      parts = [];
      bytes = 0;
    }
  }
  if (bytes > 0) yield Buffer.concat(parts);
}

async function* splitLines(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string, void> {
  let rest: Buffer[] = [];
  for await (const chunk of chunks) {
    let from = 0;
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, from)) {
      yield Buffer.concat([...rest, chunk.subarray(from, end)]).toString("utf8");
      rest = [];
      from = end + 1;
    }
    if (from < chunk.byteLength) rest.push(Buffer.from(chunk.subarray(from)));
  }
}

/** The change that an entry makes, where it makes one. */
export function controlCommandOf(entry: LogCommand | undefined): ControlCommand | undefined {
  return entry?.type === "control" ? readCommand(entry.command) : undefined;
}
