/** What a node says to its operator: fields and a short fact, in the order that pino takes them. */
export interface NodeLog {
  info(fields: Readonly<Record<string, unknown>>, message: string): void;
  warn(fields: Readonly<Record<string, unknown>>, message: string): void;
  error(fields: Readonly<Record<string, unknown>>, message: string): void;
}

/** One JSON object a line on standard output, as log collectors take it. */
export function jsonLog(service: string): NodeLog {
  const at = (level: string) => (fields: Readonly<Record<string, unknown>>, msg: string) => {
    const time = new Date().toISOString();
    process.stdout.write(`${JSON.stringify({ level, time, service, ...fields, msg })}\n`);
  };
  return { info: at("info"), warn: at("warn"), error: at("error") };
}
