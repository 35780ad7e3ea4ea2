/** What becomes of a block of a page: run, left running, the reader's to change, run by a test, or not run. */
type ShellBlockKind = "run" | "background" | "settings" | "tested-by" | "not-run";

/** A fenced block of commands of a page. */
export interface ShellBlock {
  /** The number of its first line in the page. */
  readonly line: number;
  readonly kind: ShellBlockKind;
  /** The test that runs it, or the reason why none does. */
  readonly why: string;
  readonly text: string;
  /** The exit code that the page promises. */
  readonly exit: number;
  /** Lines of the output that the page shows; `...` in them is anything. */
  readonly output: readonly string[];
}

const FENCE = /^( *)```(.*)\n([\s\S]*?)^\1```$/gm;
const TAG = /^sh(?: (?:(background|settings)|exit=(\d+)|(tested-by|not-run)="([^"]+)"))?$/;
const COMMAND = /^ *(?:\$ )?(?:heddle|heddle-\w+|curl|npm|npx|git) /m;

/**
 * The blocks of commands of a page, in order. Throws for commands in a block that is not tagged `sh`, and for
 * a tag that is not known.
 */
export function shellBlocks(page: string): ShellBlock[] {
  const blocks: ShellBlock[] = [];
  for (const { index, 1: indent = "", 2: info = "", 3: body = "" } of page.matchAll(FENCE)) {
    const line = page.slice(0, index).split("\n").length + 1;
    const lines = body.split("\n").map((each) => each.slice(indent.length));
    const last = blocks.at(-1);
    if (info === "output") {
      if (!last) throw new Error(`line ${line}: output of no command`);
      blocks[blocks.length - 1] = { ...last, output: lines.filter((each) => each !== "") };
      continue;
    }
    const tag = TAG.exec(info);
    if (tag) {
      const [, kind, exit = "0", mark, why = ""] = tag;
      const text = lines.join("\n").trim();
      const known = (kind ?? mark ?? "run") as ShellBlockKind;
      blocks.push({ line, kind: known, why, text, exit: Number(exit), output: [] });
    } else if (/^(sh|bash|shell|console)\b/.test(info) || (info === "" && COMMAND.test(body))) {
      throw new Error(`line ${line}: a block of commands is tagged \`sh\`, not \`${info}\``);
    }
  }
  return blocks;
}
