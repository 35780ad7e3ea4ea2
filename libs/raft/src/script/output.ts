import { CommandError } from "./directive.ts";
import type { TraceLevel } from "./trace-text.ts";

const LEVELS = ["DEBUG", "INFO", "WARN", "ERROR", "FATAL", "NONE"];

/** What a command prints, below a level of log lines; at level NONE it prints nothing at all. */
export class Output {
  #text = "";
  #level = 0;

  get quiet(): boolean {
    return this.#level === LEVELS.length - 1;
  }

  get level(): string {
    return LEVELS[this.#level] as string;
  }

  /** Sets the level by its name in upper or lower case. */
  setLevel(name: string): void {
    const level = LEVELS.indexOf(name.toUpperCase());
    if (level < 0) throw new CommandError(`log levels must be either of [${LEVELS.join(" ")}]`);
    this.#level = level;
  }

  write(text: string): void {
    if (!this.quiet) this.#text += text;
  }

  log(level: TraceLevel, text: string): void {
    if (LEVELS.indexOf(level) >= this.#level) this.write(`${level} ${text}\n`);
  }

  /** Indents by two spaces whatever is written meanwhile. */
  indent(action: () => void): void {
    const before = this.#text;
    this.#text = "";
    try {
      action();
    } finally {
      // What was written before an action failed is part of the output as well.
      const lines = this.#text.split("\n");
      if (lines.at(-1) === "") lines.pop();
      this.#text = before + lines.map((line) => `  ${line}\n`).join("");
    }
  }

  /** Removes and returns what was written. */
  take(): string {
    const text = this.#text;
    this.#text = "";
    return text;
  }
}
