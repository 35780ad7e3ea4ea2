import type { LogPiece } from "@heddle/storage/task-log";

/** The output of a simulated task, in memory. */
export class MemoryLog {
  #data = Buffer.alloc(0);
  #lines: { readonly at: number; readonly unixMs: number }[] = [];
  #isComplete = false;

  get end(): number {
    return this.#data.byteLength;
  }

  get complete(): boolean {
    return this.#isComplete;
  }

  append(line: string): void {
    this.#lines.push({ at: this.end, unixMs: Date.now() });
    this.#data = Buffer.concat([this.#data, Buffer.from(`${line}\n`)]);
  }

  finish(): void {
    this.#isComplete = true;
  }

  async read(from: number, maxBytes: number): Promise<LogPiece> {
    const data = this.#data.subarray(from, from + maxBytes);
    const times = this.#lines
      .filter(({ at }) => at >= from && at < from + data.byteLength)
      .map(({ at, unixMs }) => ({ at: at - from, unixMs }));
    const complete = this.#isComplete && from + data.byteLength === this.end;
    return { offset: from, data, times, complete };
  }
}
