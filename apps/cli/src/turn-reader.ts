import { createInterface, type Interface, type Key } from "node:readline";
import { AppError } from "@heddle/base/errors";

/** With this mode (DECSET 2004) a terminal marks pasted text. */
const MARK_PASTES = { on: "\x1b[?2004h", off: "\x1b[?2004l" };
/** Lines closer than this were pasted, in a terminal that does not mark it. */
const PASTE_GAP_MS = 30;
/** Lines that Up recalls. */
const HISTORY_LINES = 500;
const MAX_TURN_CHARACTERS = 1_000_000;

/**
 * The turns that a user types at a terminal. Up recalls earlier lines. A paste of several lines is
 * one turn, submitted by Enter.
 */
export class TurnReader {
  #history: string[] = [];

  /**
   * The next turn; undefined at the end of the input. Each turn has its own reader, so that Ctrl-C
   * reaches the answers between them. Rejects with `invalid_value` if the turn is too long.
   */
  async next(): Promise<string | undefined> {
    const reader = createInterface({
      input: process.stdin,
      output: process.stderr,
      history: this.#history,
      historySize: HISTORY_LINES,
      removeHistoryDuplicates: true,
      prompt: "> ",
    });
    reader.on("history", (history) => {
      this.#history = history;
    });
    process.stderr.write(MARK_PASTES.on);
    try {
      reader.prompt();
      return await readTurn(reader);
    } finally {
      reader.close();
      process.stderr.write(MARK_PASTES.off);
    }
  }
}

function readTurn(reader: Interface): Promise<string | undefined> {
  const { promise, resolve, reject } = Promise.withResolvers<string | undefined>();
  const lines: string[] = [];
  let characters = 0;
  let isPasting = false;
  let timer: NodeJS.Timeout | undefined;
  const onKey = (_: string | undefined, { name }: Key) => {
    if (name === "paste-start") isPasting = true;
    if (name === "paste-end") isPasting = false;
  };
  const onGap = () => {
    // The rest of a paste that ended within a line waits for Enter.
    if (!isPasting && reader.line === "") resolve(lines.join("\n"));
  };
  process.stdin.on("keypress", onKey);
  reader.on("line", (line) => {
    lines.push(line);
    characters += line.length + 1;
    if (characters > MAX_TURN_CHARACTERS) {
      const message = `The input exceeds the limit of ${MAX_TURN_CHARACTERS} characters.`;
      reject(new AppError("invalid_value", message));
    }
    clearTimeout(timer);
    if (!isPasting) timer = setTimeout(onGap, PASTE_GAP_MS);
  });
  reader.once("close", () => {
    clearTimeout(timer);
    process.stdin.off("keypress", onKey);
    resolve(undefined);
  });
  return promise;
}
