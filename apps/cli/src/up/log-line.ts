/** A line of a child's output: a pino record, or plain text. */
export type LogLine =
  | {
      readonly kind: "record";
      /** pino's numbers: 10 trace, 20 debug, 30 info, 40 warn, 50 error, 60 fatal. */
      readonly level: number;
      readonly message: string;
      readonly fields: Readonly<Record<string, unknown>>;
    }
  | { readonly kind: "text"; readonly text: string };

const HIDDEN_FIELDS = new Set(["level", "time", "pid", "hostname", "msg", "name", "v"]);
const LEVEL_NAMES: Readonly<Record<string, number>> = {
  trace: 10,
  debug: 20,
  info: 30,
  warn: 40,
  error: 50,
  fatal: 60,
};

export function parseLogLine(line: string): LogLine {
  const record = parseRecord(line);
  const level = record ? levelOf(record["level"]) : undefined;
  if (!record || level === undefined) return { kind: "text", text: line };
  const fields = Object.fromEntries(
    Object.entries(record).filter(([name]) => !HIDDEN_FIELDS.has(name)),
  );
  const message = typeof record["msg"] === "string" ? record["msg"] : "";
  return { kind: "record", level, message, fields };
}

function parseRecord(line: string): Record<string, unknown> | undefined {
  if (!line.startsWith("{")) return undefined;
  try {
    return JSON.parse(line) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}

function levelOf(level: unknown): number | undefined {
  return typeof level === "number" ? level : LEVEL_NAMES[String(level)];
}

/** The line without colour: `message field=value ...`; an error field shows its message. */
export function describeLogLine(line: LogLine): string {
  if (line.kind === "text") return line.text;
  const fields = Object.entries(line.fields).map(([name, value]) => `${name}=${fieldText(value)}`);
  return [line.message, ...fields].join(" ").trim();
}

function fieldText(value: unknown): string {
  if (typeof value === "object" && value !== null && "message" in value) {
    return JSON.stringify((value as { message: unknown }).message);
  }
  if (typeof value === "string" && /^[\w.:/@-]+$/.test(value)) return value;
  return JSON.stringify(value) ?? "undefined";
}
