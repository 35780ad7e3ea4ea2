import type { DestinationStream } from "pino";

/** Writes a logger's lines for people: the level unless it is `info`, the message and the fields. */
export function plainLines(output: { write(text: string): unknown }): DestinationStream {
  return {
    write: (line) => {
      const { level, msg, time: _, service: __, pid: ___, ...fields } = JSON.parse(line) as Line;
      const start = level === "info" ? "" : `${level}: `;
      const more = Object.entries(fields).map(([name, value]) => ` ${name}=${textOf(value)}`);
      output.write(`${start}${msg}${more.join("")}\n`);
    },
  };
}

type Line = Readonly<Record<string, unknown>>;

function textOf(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}
