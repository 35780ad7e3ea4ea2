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

/** All control characters except tab and line feed. */
const CONTROLS = /(?![\t\n])\p{Cc}/gu;
/** The same, and the colours of `paint`, each as one match. */
const COLOURS_OR_CONTROLS = new RegExp(
  `\x1b\\[(?:${Object.values(CODES).flat().join("|")})m|${CONTROLS.source}`,
  CONTROLS.flags,
);
/** Deletes the current line and goes to its start. */
const REDRAW = "\r\x1b[2K";

/** An output stream of a command; colours and animation only on a terminal. */
export interface Terminal {
  readonly isTty: boolean;
  /** Characters per line of the terminal; 80 without one. */
  readonly columns: number;
  /** On a terminal nothing but colours: most texts name what tasks, models and servers have written. */
  write(text: string): void;
  /** Writes in place of the current line of a terminal. */
  redraw(text: string): void;
  /** Control sequences of the command's own for a terminal, such as those that clear it. */
  control(sequences: string): void;
  /**
   * Writes untrusted text, such as a model's: a terminal gets no control sequences, other outputs
   * get the bytes unchanged.
   */
  writeForeign(given: string | Buffer): void;
  /** The text in a style, or unchanged if colours are off (https://no-color.org). */
  paint(style: Style, text: string): string;
}

export function terminal(stream: NodeJS.WriteStream, env = process.env): Terminal {
  const isTty = stream.isTTY === true;
  const coloured = isTty && !env["NO_COLOR"] && env["TERM"] !== "dumb";
  const write = (text: string) => void stream.write(isTty ? coloursAlone(text) : text);
  return {
    isTty,
    columns: stream.columns ?? 80,
    write,
    redraw: (text) => {
      stream.write(REDRAW);
      write(text);
    },
    control: (sequences) => void stream.write(sequences),
    writeForeign: (given) =>
      void stream.write(isTty ? given.toString().replace(CONTROLS, "\ufffd") : given),
    paint: (style, text) => {
      const [on, off] = CODES[style];
      return coloured ? `\x1b[${on}m${text}\x1b[${off}m` : text;
    },
  };
}

function coloursAlone(text: string): string {
  return text.replace(COLOURS_OR_CONTROLS, (found) => (found.length > 1 ? found : "\ufffd"));
}

/**
 * Resolves when the stream has flushed its buffer, or when the signal aborts. A writer of much data
 * waits for it: a slow reader such as `less` would otherwise let the buffer fill the memory.
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

/** The columns of the text, without colours. */
export function visibleWidth(text: string): number {
  return stripVTControlCharacters(text).length;
}
