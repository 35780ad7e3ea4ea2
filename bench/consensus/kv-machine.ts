import type { Command, StateMachine } from "@heddle/consensus/ports";

const CHUNK_BYTES = 256 * 1024;

/** Keys with values: the smallest state that a put and a read can be measured on. */
export class KvMachine implements StateMachine<undefined> {
  values = new Map<string, Uint8Array>();

  apply(commands: readonly Command[]): Promise<readonly undefined[]> {
    for (const { data } of commands) this.#put(data);
    return Promise.resolve(new Array<undefined>(commands.length));
  }

  *snapshot(): Generator<Uint8Array, void> {
    let parts: Uint8Array[] = [];
    let bytes = 0;
    // The map is not copied: the benchmark's values only get newer, never lost, meanwhile.
    for (const [key, value] of this.values) {
      const command = encodePut(key, value);
      const head = Buffer.allocUnsafe(4);
      head.writeUInt32LE(command.byteLength);
      parts.push(head, command);
      bytes += command.byteLength + 4;
      if (bytes < CHUNK_BYTES) continue;
      yield Buffer.concat(parts);
      parts = [];
      bytes = 0;
    }
    if (bytes > 0) yield Buffer.concat(parts);
  }

  async restore(chunks: AsyncIterable<Uint8Array>): Promise<void> {
    this.values = new Map();
    for await (const chunk of chunks) {
      const bytes = Buffer.from(chunk);
      for (let at = 0; at < bytes.length; ) {
        const length = bytes.readUInt32LE(at);
        this.#put(bytes.subarray(at + 4, at + 4 + length));
        at += 4 + length;
      }
    }
  }

  #put(data: Uint8Array): void {
    const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
    const keyEnd = 2 + bytes.readUInt16LE(0);
    const key = bytes.toString("latin1", 2, keyEnd);
    const value = bytes.subarray(keyEnd);
    const present = this.values.get(key);
    // A view would keep all commands of its batch in memory.
    if (present?.byteLength === value.byteLength) present.set(value);
    else this.values.set(key, new Uint8Array(value));
  }
}

/** A put as a command of the log: length of the key u16, key, value. */
export function encodePut(key: string, value: Uint8Array): Uint8Array {
  const command = Buffer.allocUnsafe(2 + key.length + value.byteLength);
  command.writeUInt16LE(key.length);
  command.write(key, 2, "latin1");
  command.set(value, 2 + key.length);
  return command;
}
