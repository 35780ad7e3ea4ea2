import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { constants } from "node:fs";
import { join, relative } from "node:path";
import { promisify } from "node:util";
import { makeDirectoryBeneath, openFileBeneath, replaceFileBeneath } from "@heddle/base/beneath";
import {
  CONTROL_FILES,
  type RunnerEvent,
  type RunnerOrder,
  type RunnerProgram,
} from "./program/messages.ts";

const APPEND = constants.O_WRONLY | constants.O_APPEND;
const MAX_READ_BYTES = 64 * 1024;
const MAX_EVENTS = 4_096;
const MAKE_TIMEOUT_MS = 10_000;

type Order =
  | Omit<Extract<RunnerOrder, { kind: "signal" }>, "id">
  | { readonly kind: "start" | "kill" };

/**
 * The worker's side of the folder that it shares with a task's runner elsewhere. The program may
 * write there too: no link is followed, and what cannot be read is skipped.
 */
export class RunnerControl {
  /** Absolute. */
  readonly folder: string;
  readonly #root: string;
  readonly #name: string;
  readonly #events: RunnerEvent[] = [];
  #offset = 0;

  /** `directory` is the task's, below the `root` of all tasks. */
  constructor(root: string, directory: string) {
    this.folder = join(directory, "pod");
    this.#root = root;
    this.#name = relative(root, this.folder);
  }

  get pipes(): [stdout: string, stderr: string] {
    return [join(this.folder, "stdout.pipe"), join(this.folder, "stderr.pipe")];
  }

  /** Makes the folder for a runner that has not begun. */
  async create(): Promise<void> {
    await makeDirectoryBeneath(this.#root, this.#name);
    const { orders, events } = CONTROL_FILES;
    for (const name of [orders, events]) await replaceFileBeneath(this.#root, this.#in(name), "");
    await promisify(execFile)("mkfifo", ["-m", "600", ...this.pipes], { timeout: MAKE_TIMEOUT_MS });
  }

  /** Says what to run, which the runner removes as it reads it: there may be secrets in it. */
  async give(program: RunnerProgram): Promise<void> {
    const text = JSON.stringify(program);
    await replaceFileBeneath(this.#root, this.#in(CONTROL_FILES.program), text);
  }

  /** Returns the order's id. */
  async order(order: Order): Promise<string> {
    const id = randomUUID();
    const file = await openFileBeneath(this.#root, this.#in(CONTROL_FILES.orders), APPEND);
    try {
      await file.writeFile(`${JSON.stringify({ id, ...order })}\n`);
    } finally {
      await file.close();
    }
    return id;
  }

  /** All events until now, from the first on. */
  async events(): Promise<readonly RunnerEvent[]> {
    const file = await openFileBeneath(this.#root, this.#in(CONTROL_FILES.events));
    try {
      const bytes = Buffer.alloc(MAX_READ_BYTES);
      const { bytesRead } = await file.read(bytes, 0, bytes.byteLength, this.#offset);
      const text = bytes.toString("utf8", 0, bytesRead);
      const end = text.lastIndexOf("\n") + 1;
      // A line that is too long is not the runner's.
      const taken = end === 0 && bytesRead === MAX_READ_BYTES ? text.length : end;
      this.#offset += Buffer.byteLength(text.slice(0, taken));
      this.#events.push(...text.slice(0, end).split("\n").flatMap(eventOf));
      if (this.#events.length > MAX_EVENTS)
        this.#events.splice(1, this.#events.length - MAX_EVENTS);
    } finally {
      await file.close();
    }
    return this.#events;
  }

  #in(name: string): string {
    return `${this.#name}/${name}`;
  }
}

function eventOf(line: string): RunnerEvent[] {
  try {
    const event = JSON.parse(line) as RunnerEvent | null;
    return event !== null && typeof event === "object" && "kind" in event ? [event] : [];
  } catch {
    return [];
  }
}
