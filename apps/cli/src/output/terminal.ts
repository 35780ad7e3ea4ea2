import { stripVTControlCharacters } from "node:util";

type Style = "bold" | "dim" | "red" | "green" | "yellow" | "cyan" | "magenta" | "blue";

const CODES: Readonly<Record<Style, readonly [number, number]>> = {
  bold: [1, 22],
  dim: [2, 22],
  red: [31, 39],
  green: [32, 39],
  yellow: [33, 39],
  blue: [34, 39],
  magenta: [35, 39],
  cyan: [36, 39],
};

/** All control characters but the tabulator and the line feed. */
const CONTROLS = /(?![\t\n])\p{Cc}/gu;

/** A stream as the commands write to it; colours and animation only where it is a terminal. */
export interface Terminal {
  readonly isTty: boolean;
  /** Characters in a line of the terminal; 80 where there is none. */
  readonly columns: number;
  write(text: string): void;
  /**
   * Writes what somebody else made, such as a model: no control sequence reaches a terminal, and
   * everywhere else it is written byte for byte.
   */
  writeForeign(given: string | Buffer): void;
  /** The text in a style, or as it is where colours are off (https://no-color.org). */
  paint(style: Style, text: string): string;
}

export function terminal(stream: NodeJS.WriteStream, env = process.env): Terminal {
  const isTty = stream.isTTY === true;
  const coloured = isTty && !env["NO_COLOR"] && env["TERM"] !== "dumb";
  return {
    isTty,
    columns: stream.columns ?? 80,
    write: (text) => void stream.write(text),
    writeForeign: (given) =>
      void stream.write(isTty ? given.toString().replace(CONTROLS, "\ufffd") : given),
    paint: (style, text) => {
      const [on, off] = CODES[style];
      return coloured ? `\x1b[${on}m${text}\x1b[${off}m` : text;
    },
  };
}

/**
 * Resolves once the stream has handed on what was written to it, at once where it keeps little. Who
 * writes much waits for it: a pipe whose reader is slow, such as `less`, would else fill the memory,
 * and the system refuses some millions of pieces at once. It resolves too where the signal aborts.
 */
export async function drained(stream: NodeJS.WriteStream, signal?: AbortSignal): Promise<void> {
  if (!stream.writableNeedDrain || signal?.aborted) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  const go = () => resolve();
  stream.once("drain", go);
  signal?.addEventListener("abort", go, { once: true });
  await promise;
  stream.off("drain", go);
  signal?.removeEventListener("abort", go);
}

/** The columns that the text takes, colours not counted. */
export function visibleWidth(text: string): number {
  return stripVTControlCharacters(text).length;
}
