/** What a node says to its operator: a short fact and its fields. */
export interface NodeLog {
  info(message: string, fields?: Readonly<Record<string, unknown>>): void;
  warn(message: string, fields?: Readonly<Record<string, unknown>>): void;
  error(message: string, fields?: Readonly<Record<string, unknown>>): void;
}

/** One JSON object a line on standard output, as log collectors take it. */
export function jsonLog(component: string): NodeLog {
  const write = (level: string, msg: string, fields: Readonly<Record<string, unknown>> = {}) => {
    const time = new Date().toISOString();
    process.stdout.write(`${JSON.stringify({ time, level, component, msg, ...fields })}\n`);
  };
  return {
    info: (message, fields) => write("info", message, fields),
    warn: (message, fields) => write("warn", message, fields),
    error: (message, fields) => write("error", message, fields),
  };
}
