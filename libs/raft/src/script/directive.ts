/** An argument of a command: `key`, `key=value` or `key=(value, value)`. */
interface Argument {
  readonly key: string;
  readonly values: readonly string[];
}

/** A script that cannot be run as written; the message says where. */
export class ScriptError extends Error {
  override readonly name = "ScriptError";
}

/** What went wrong in a command, as a script expects it in the output. */
export class CommandError extends Error {
  override readonly name = "CommandError";
}

/** One command of a data-driven script: its first line, and the lines up to the separator. */
export class Directive {
  readonly command: string;
  readonly args: readonly Argument[];
  readonly input: string;

  constructor(line: string, input: string) {
    const [command = "", ...rest] = line.trim().split(" ");
    this.command = command;
    this.args = parseArguments(rest.join(" ").trim());
    this.input = input.trim();
  }

  /** The arguments without a value, in order. */
  get positional(): string[] {
    return this.args.filter((arg) => arg.values.length === 0).map((arg) => arg.key);
  }

  /** The one value of an argument. */
  value(key: string): string {
    const values = this.args.find((arg) => arg.key === key)?.values ?? [];
    const [value] = values;
    if (value === undefined || values.length > 1) {
      throw new ScriptError(`${this.command}: ${key} needs one value`);
    }
    return value;
  }
}

function parseArguments(text: string): Argument[] {
  const args: Argument[] = [];
  let rest = text;
  while (rest !== "") {
    const key = /^[^ =]+/.exec(rest)?.[0];
    if (key === undefined) throw new ScriptError(`cannot read the arguments from "${rest}" on`);
    rest = rest.slice(key.length);
    let values: string[] = [];
    if (rest.startsWith("=(")) {
      const end = closingParenthesis(rest, 1);
      values = splitValues(rest.slice(2, end));
      rest = rest.slice(end + 1);
    } else if (rest.startsWith("=")) {
      const value = /^=[^ ]*/.exec(rest)?.[0] ?? "=";
      values = [value.slice(1)];
      rest = rest.slice(value.length);
    }
    args.push({ key, values });
    rest = rest.trim();
  }
  return args;
}

function closingParenthesis(text: string, open: number): number {
  let depth = 0;
  for (let i = open; i < text.length; i++) {
    if (text[i] === "(") depth++;
    if (text[i] === ")" && --depth === 0) return i;
  }
  throw new ScriptError(`"${text}" lacks a closing parenthesis`);
}

/** The values between commas that are not within inner parentheses. */
function splitValues(text: string): string[] {
  const values = [""];
  let depth = 0;
  for (const char of text) {
    if (char === "(") depth++;
    if (char === ")") depth--;
    if (char === "," && depth === 0) values.push("");
    else values[values.length - 1] += char;
  }
  return values.map((value) => value.trim());
}

/** A whole number without a sign. */
export function parseNumber(text: string): number {
  if (!/^\d+$/.test(text)) throw new ScriptError(`"${text}" is not a number`);
  return Number(text);
}

/** true or false, in the spellings that Go's strconv takes. */
export function parseBoolean(text: string): boolean {
  if (/^(1|t|T|true|TRUE|True)$/.test(text)) return true;
  if (/^(0|f|F|false|FALSE|False)$/.test(text)) return false;
  throw new ScriptError(`"${text}" is neither true nor false`);
}
