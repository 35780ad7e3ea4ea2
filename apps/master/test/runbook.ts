import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { programOf } from "@heddle/base/testing/programs";
import { type ShellBlock, shellBlocks } from "./shell-blocks.ts";

const repository = fileURLToPath(new URL("../../../", import.meta.url));

/** A step's output and exit code. */
export interface RunbookStepResult {
  readonly code: number;
  readonly output: string;
}

/** A process that a runbook left running. */
export interface Background {
  readonly child: ChildProcess;
  /** Its HTTP address, if it is a master. */
  readonly url: string;
  /** Its output so far. */
  readonly output: { readonly text: string };
}

/** A page of docs/ whose commands are run in order, unchanged. */
export class Runbook {
  readonly env: NodeJS.ProcessEnv;
  readonly #page: string;
  readonly #folder: string;
  readonly #steps: ShellBlock[];
  readonly #children = new Set<ChildProcess>();

  /**
   * `env` has the page's settings; commands run in `folder`. A `PATH` in it must have the programs.
   */
  constructor(page: string, folder: string, env: NodeJS.ProcessEnv) {
    this.#page = page;
    this.#folder = folder;
    const text = readFileSync(join(repository, "docs", `${page}.md`), "utf8");
    this.#steps = shellBlocks(text).filter(({ kind }) => kind === "run" || kind === "background");
    const path = env["PATH"] ?? `${commandFolder(folder)}${delimiter}${process.env["PATH"]}`;
    const { NODE_COMPILE_CACHE } = process.env;
    this.env = { HOME: folder, NODE_COMPILE_CACHE, ...env, PATH: path };
  }

  /**
   * Runs the next block, which must exit with the code that the page promises. `place` is a prefix of its command
   * line, as `ip netns exec NAME`.
   */
  async run(place: readonly string[] = []): Promise<RunbookStepResult> {
    const { text, exit: code } = this.#next("run");
    const child = this.#spawn(text, place);
    const output = collect(child);
    const [ended] = (await once(child, "close")) as [number | null];
    if (ended !== code) throw new Error(`${text}\nended with ${ended}:\n${output.text}`);
    return { code, output: output.text };
  }

  /** Starts the next block and resolves when it is ready. */
  async start(place: readonly string[] = []): Promise<Background> {
    const { text } = this.#next("background");
    const child = this.#spawn(`exec ${text}`, place);
    const output = collect(child);
    const ended = once(child, "close");
    for (;;) {
      const ready = output.text.split("\n").find((line) => line.includes('"msg":"ready"'));
      if (ready) return { child, url: (JSON.parse(ready) as { http: string }).http, output };
      if (output.text.includes("Ctrl-C stops everything")) return { child, url: "", output };
      const more = once(child.stdout as NodeJS.ReadableStream, "data");
      const complaint = once(child.stderr as NodeJS.ReadableStream, "data");
      const isEnded = await Promise.race([ended.then(() => true), more, complaint]);
      if (isEnded === true) throw new Error(`${text}\nended:\n${output.text}`);
    }
  }

  /** Fails if steps of the page were not run. */
  end(): void {
    const [left] = this.#steps;
    if (left) throw new Error(`the page ${this.#page} has more steps: ${left.text}`);
  }

  async close(): Promise<void> {
    for (const child of this.#children) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const ended = once(child, "close");
      child.kill("SIGTERM");
      await ended;
    }
  }

  #next(kind: ShellBlock["kind"]): ShellBlock {
    const step = this.#steps.shift();
    if (step?.kind === kind) return step;
    throw new Error(`the next step of ${this.#page} is not to ${kind}: ${step?.text}`);
  }

  #spawn(text: string, place: readonly string[]): ChildProcess {
    const options = { cwd: this.#folder, env: this.env };
    const [program = "", ...args] = [...place, "bash", "-euo", "pipefail", "-c", text];
    const child = spawn(program, args, options);
    this.#children.add(child);
    return child;
  }
}

/** A folder with the two programs under the names that the pages use. */
export function commandFolder(folder: string): string {
  const bin = join(folder, "bin");
  mkdirSync(bin, { recursive: true });
  for (const [name, app] of [
    ["heddle", "cli"],
    ["heddle-master", "master"],
  ] as const) {
    const program = programOf(app);
    const path = join(bin, name);
    writeFileSync(path, `#!/bin/sh\nexec "${process.execPath}" "${program}" "$@"\n`);
    chmodSync(path, 0o755);
  }
  return bin;
}

function collect(child: ChildProcess): { text: string } {
  const output = { text: "" };
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on("data", (chunk) => {
      output.text += chunk;
    });
  }
  return output;
}
