import { createWriteStream, existsSync, renameSync, statSync, type WriteStream } from "node:fs";
import { join } from "node:path";
import type { Terminal } from "../output/terminal.ts";
import { describeLogLine, type LogLine } from "./log-line.ts";
import type { ProcessLogLevel } from "./options.ts";
import type { ProcessEvents, ProcessSpec } from "./supervised-process.ts";

interface ProcessLogOptions {
  /** The directory of the processes' raw output, one file each. */
  readonly directory: string;
  readonly messages: Terminal;
  /** The lowest level that is shown; plain text lines are always shown. */
  readonly level: ProcessLogLevel;
  /** True for a warning that the caller reports itself: it is logged, not shown. */
  readonly isExpected?: (line: Extract<LogLine, { kind: "record" }>) => boolean;
  readonly onGaveUp: (spec: ProcessSpec, why: string) => void;
}

const LEVELS: Readonly<Record<ProcessLogLevel, number>> = {
  debug: 20,
  info: 30,
  warn: 40,
  error: 50,
};
const MAX_FILE_BYTES = 16 * 1024 * 1024;
const MAX_SHOWN_CHARS = 2_000;
const PREFIX_STYLES = ["cyan", "magenta", "blue", "green"] as const;

/**
 * Writes the output of every process to `DIRECTORY/NAME.log` (the previous file is `NAME.log.1`).
 * Shows the important lines, prefixed with the process name.
 */
export class ProcessLog implements ProcessEvents {
  readonly #options: ProcessLogOptions;
  readonly #files = new Map<string, { stream: WriteStream; bytes: number }>();
  readonly #styles = new Map<string, (typeof PREFIX_STYLES)[number]>();

  constructor(options: ProcessLogOptions) {
    this.#options = options;
  }

  line(spec: ProcessSpec, line: LogLine, raw: string): void {
    this.#keep(spec.name, raw);
    if (line.kind === "text") {
      if (raw.trim() !== "") this.#show(spec, line.text);
    } else if (line.level < LEVELS[this.#options.level]) {
      return;
    } else if (line.level >= LEVELS.warn) {
      if (LEVELS[this.#options.level] >= LEVELS.warn && this.#options.isExpected?.(line)) return;
      const { paint } = this.#options.messages;
      const style = line.level >= LEVELS.error ? "red" : "yellow";
      this.#show(
        spec,
        `${paint(style, style === "red" ? "error" : "warn")} ${describeLogLine(line)}`,
      );
    } else {
      this.#show(spec, describeLogLine(line));
    }
  }

  restarting(spec: ProcessSpec, why: string, delayMs: number): void {
    const text = `${why}; restarting in ${(delayMs / 1000).toFixed(1)} s`;
    this.#show(spec, this.#options.messages.paint("yellow", text));
  }

  gaveUp(spec: ProcessSpec, why: string): void {
    const text = `${why} Its log: ${join(this.#options.directory, `${spec.name}.log`)}`;
    this.#show(spec, this.#options.messages.paint("red", text));
    this.#options.onGaveUp(spec, why);
  }

  left(spec: ProcessSpec, why: string): void {
    this.#show(spec, this.#options.messages.paint("yellow", `not restarted: ${why}`));
  }

  close(): void {
    for (const { stream } of this.#files.values()) stream.end();
    this.#files.clear();
  }

  #show(spec: ProcessSpec, text: string): void {
    const { messages } = this.#options;
    const prefix = messages.paint(this.#styleOf(spec.name), spec.name.padEnd(9));
    messages.write(`${prefix} ${text.slice(0, MAX_SHOWN_CHARS)}\n`);
  }

  #styleOf(name: string): (typeof PREFIX_STYLES)[number] {
    const known = this.#styles.get(name);
    if (known) return known;
    const style = PREFIX_STYLES[this.#styles.size % PREFIX_STYLES.length] ?? "cyan";
    this.#styles.set(name, style);
    return style;
  }

  #keep(name: string, raw: string): void {
    let file = this.#files.get(name);
    if (!file || file.bytes > MAX_FILE_BYTES) {
      file?.stream.end();
      file = this.#open(name);
      this.#files.set(name, file);
    }
    file.bytes += Buffer.byteLength(raw) + 1;
    file.stream.write(`${raw}\n`);
  }

  #open(name: string): { stream: WriteStream; bytes: number } {
    const path = join(this.#options.directory, `${name}.log`);
    const bytes = existsSync(path) ? statSync(path).size : 0;
    if (bytes > MAX_FILE_BYTES) renameSync(path, `${path}.1`);
    const stream = createWriteStream(path, { flags: "a", mode: 0o600 });
    // A full disk must not end the cluster; the terminal still shows important lines.
    stream.on("error", () => {});
    return { stream, bytes: bytes > MAX_FILE_BYTES ? 0 : bytes };
  }
}
