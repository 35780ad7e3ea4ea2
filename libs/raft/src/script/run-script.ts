import { Directive, ScriptError } from "./directive.ts";

/** What answers a command: its output, with or without a last newline. */
export type CommandHandler = (directive: Directive) => string;

/** A cursor over the lines of a script; kept lines are copied to the output. */
class Lines {
  readonly #lines: readonly string[];
  #position = 0;
  readonly #output: string[] = [];

  constructor(text: string) {
    const lines = text.split("\n").map((line) => line.replace(/\r$/, ""));
    if (lines.at(-1) === "") lines.pop();
    this.#lines = lines;
  }

  get number(): number {
    return this.#position;
  }

  next(): string | undefined {
    return this.#lines[this.#position++];
  }

  emit(line: string): void {
    this.#output.push(line);
  }

  /** The script with its new outputs; blank lines at the end shrink to none. */
  text(): string {
    const text = this.#output.map((line) => `${line}\n`).join("");
    return text.endsWith("\n\n") ? text.slice(0, -1) : text;
  }
}

const SEPARATOR = "----";

/**
 * Runs every command of a data-driven script (the format of github.com/cockroachdb/datadriven).
 * Returns the script with the actual outputs; comments, blank lines and the input of commands stay
 * as they are.
 */
export function runScript(text: string, handler: CommandHandler): string {
  const lines = new Lines(text);
  for (let line = lines.next(); line !== undefined; line = lines.next()) {
    lines.emit(line);
    const first = line.trim();
    if (first === "" || first.startsWith("#")) continue;
    const number = lines.number;
    const command = joinContinuations(lines, first);
    if (command === "subtest" || command.startsWith("subtest ")) continue;
    const input = readInput(lines);
    emitOutput(lines, answer(handler, command, input, number));
  }
  return lines.text();
}

function answer(handler: CommandHandler, command: string, input: string, line: number): string {
  try {
    return handler(new Directive(command, input));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ScriptError(`line ${line}: ${command}: ${reason}`, { cause: error });
  }
}

/** A command may go on over lines that end with a backslash. */
function joinContinuations(lines: Lines, first: string): string {
  let command = first;
  while (command.endsWith("\\")) {
    const next = lines.next();
    if (next === undefined) break;
    lines.emit(next);
    command = `${command.slice(0, -1)} ${next.trim()}`;
  }
  return command;
}

/** The lines up to the separator; the old output behind it is skipped. */
function readInput(lines: Lines): string {
  const input: string[] = [];
  for (let line = lines.next(); line !== undefined; line = lines.next()) {
    if (line === SEPARATOR) {
      skipExpected(lines);
      break;
    }
    lines.emit(line);
    input.push(line);
  }
  return input.join("\n");
}

/** Output ends at a blank line, or at two separators if it began with a second one. */
function skipExpected(lines: Lines): void {
  let line = lines.next();
  if (line !== SEPARATOR) {
    while (line !== undefined && line.trim() !== "") line = lines.next();
    return;
  }
  let previous: string | undefined;
  for (line = lines.next(); line !== undefined; line = lines.next()) {
    if (line === SEPARATOR && previous === SEPARATOR) return;
    previous = line;
  }
}

function emitOutput(lines: Lines, output: string): void {
  const body = output.replace(/\n$/, "").split("\n");
  const hasBlank = body.some((line) => line.trim() === "");
  lines.emit(SEPARATOR);
  if (hasBlank) lines.emit(SEPARATOR);
  for (const line of body) lines.emit(line);
  // Only the plain form needs the blank line that ends it; it was part of the old output.
  if (hasBlank) {
    lines.emit(SEPARATOR);
    lines.emit(SEPARATOR);
  } else {
    lines.emit("");
  }
}
