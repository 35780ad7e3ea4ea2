import { readFile, rm } from "node:fs/promises";
import { replaceFile, SHARED_MODE } from "@heddle/base/replace-file";
import type { IndexPass, PassState } from "./tensor-index.ts";

/** The progress of a pass over a file of weights, which a later process continues. */
export class KeptPass {
  readonly #path: string;
  /** The digest of the file that is read. */
  readonly #sha256: string;
  readonly #everyBytes: number;
  #keptBytes = 0;

  constructor(path: string, sha256: string, everyBytes: number) {
    this.#path = path;
    this.#sha256 = sha256;
    this.#everyBytes = everyBytes;
  }

  /** Undefined where none is kept of this file. */
  async load(): Promise<PassState | undefined> {
    const text = await readFile(this.#path, "utf8").catch(() => "{}");
    try {
      const { sha256, state } = JSON.parse(text) as { sha256?: string; state?: PassState };
      return sha256 === this.#sha256 ? state : undefined;
    } catch {
      // It is damaged.
      return undefined;
    }
  }

  /** Keeps the progress from time to time. */
  async keep(pass: IndexPass): Promise<void> {
    if (pass.position - this.#keptBytes < this.#everyBytes) return;
    const state = pass.state();
    if (!state) return;
    this.#keptBytes = pass.position;
    await replaceFile(this.#path, JSON.stringify({ sha256: this.#sha256, state }), SHARED_MODE);
  }

  async remove(): Promise<void> {
    this.#keptBytes = 0;
    await rm(this.#path, { force: true });
  }
}
