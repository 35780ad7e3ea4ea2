/** Shorter values would hide ordinary text. */
const MIN_LENGTH = 6;
const MASK = "***";

/** Hides secret values in text, each line of them by itself. */
export class HiddenValues {
  /** Longest first, so that none hides a part of another alone. */
  readonly #parts: readonly string[];

  constructor(values: Iterable<string>) {
    const lines = [...values].flatMap((value) => value.split(/[\r\n]+/));
    const parts = new Set(lines.filter((line) => line.length >= MIN_LENGTH));
    this.#parts = [...parts].sort((a, b) => b.length - a.length);
  }

  get isEmpty(): boolean {
    return this.#parts.length === 0;
  }

  hide(text: string): string {
    return this.#parts.reduce((left, part) => left.replaceAll(part, () => MASK), text);
  }

  /** The same for bytes that need not be UTF-8. */
  hideBytes(bytes: Buffer): Buffer {
    let text = bytes.toString("latin1");
    const before = text;
    for (const part of this.#parts) {
      text = text.replaceAll(Buffer.from(part).toString("latin1"), () => MASK);
    }
    return text === before ? bytes : Buffer.from(text, "latin1");
  }
}
