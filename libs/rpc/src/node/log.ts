/** A node's log for its operator: fields and a short message, in pino's order. */
export interface NodeLog {
  info(fields: Readonly<Record<string, unknown>>, message: string): void;
  warn(fields: Readonly<Record<string, unknown>>, message: string): void;
  error(fields: Readonly<Record<string, unknown>>, message: string): void;
}

/** One JSON object per line on standard output, for log collectors. */
export function jsonLog(service: string): NodeLog {
  const at = (level: string) => (fields: Readonly<Record<string, unknown>>, msg: string) => {
    const time = new Date().toISOString();
    process.stdout.write(`${JSON.stringify({ level, time, service, ...fields, msg })}\n`);
  };
  return { info: at("info"), warn: at("warn"), error: at("error") };
}
