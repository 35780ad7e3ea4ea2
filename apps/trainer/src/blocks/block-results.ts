import { appendFileSync } from "node:fs";
import { mkdir, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { BlockOrders } from "@heddle/contracts/trainer/block-orders";
import { type BlockUpdate, blockUpdate, type PluginBlock } from "@heddle/plugin-kit/points/blocks";
import { PluginError } from "../plans/plugin/plugin-error.ts";
import { UnwritableFile } from "../trainer-errors.ts";
import type { BlockCheckpoint, BlockCheckpoints } from "./block-checkpoints.ts";

/** Lines of progress are no closer, except those of checkpoints. */
const LINE_MS = 10;
const MAX_STATE_BYTES = 16 * 2 ** 20;
/** The most bytes of all outputs that are yielded, which are part of each checkpoint. */
const MAX_OUTPUT_BYTES = 64 * 2 ** 20;

type Line = Readonly<Record<string, unknown>>;

/** What a step has yielded: lines of progress, files of its outputs, and checkpoints. */
export class BlockResults {
  readonly #block: PluginBlock;
  readonly #orders: BlockOrders;
  readonly #checkpoints: BlockCheckpoints;
  readonly #outputs = new Map<string, Uint8Array>();
  #step = 0;
  /** A line that follows the one before it too closely; later ones replace what they repeat. */
  #waiting: Line = {};
  #timer: NodeJS.Timeout | undefined;

  constructor(block: PluginBlock, orders: BlockOrders, checkpoints: BlockCheckpoints) {
    this.#block = block;
    this.#orders = orders;
    this.#checkpoints = checkpoints;
  }

  /** Restores the outputs of a checkpoint; resolves with its state. */
  async resume({ step, state, outputs }: BlockCheckpoint): Promise<unknown> {
    this.#step = step;
    for (const [name, bytes] of outputs) await this.#keep(name, bytes);
    return this.#state(JSON.parse(state), "the state of its checkpoint").data;
  }

  async take(given: BlockUpdate): Promise<void> {
    const update = this.#read(given);
    const { step = this.#step + 1, progress, message, metrics, outputs = {} } = update;
    this.#step = step;
    for (const [name, value] of Object.entries(outputs)) {
      await this.#keep(name, bytesOf(value, name));
    }
    const saved =
      update.checkpoint === undefined ? {} : { checkpoint: await this.#save(update.checkpoint) };
    this.#report({ step, progress, message, ...metrics, ...saved });
  }

  /** Getters and proxies of the plugin may throw. */
  #read(given: BlockUpdate): BlockUpdate {
    try {
      const { data, error } = blockUpdate.safeParse(given);
      if (data) return data;
      throw this.#fault("what it yielded", error.issues);
    } catch (cause) {
      if (cause instanceof PluginError) throw cause;
      throw new PluginError(`what it yielded cannot be read: ${(cause as Error)?.message}`, cause);
    }
  }

  /** Rejects where an output is missing. */
  async end(): Promise<void> {
    this.#write();
    for (const [name, { artifact }] of Object.entries(this.#block.outputs ?? {})) {
      const path = join(this.#orders.artifactDirectory, artifact);
      if ((await stat(path).catch(() => undefined))?.isFile()) continue;
      const message = `the block ${this.#orders.block} left no output ${name}: yield { outputs: { ${name}: ... } }, or write the file ${artifact} in HEDDLE_ARTIFACT_DIR`;
      throw new PluginError(message);
    }
  }

  async #save(checkpoint: unknown): Promise<string> {
    const { text } = this.#state(checkpoint, "its checkpoint");
    return this.#checkpoints.save({ step: this.#step, state: text, outputs: this.#outputs });
  }

  #state(value: unknown, what: string): { readonly text: string; readonly data: unknown } {
    const { block } = this.#orders;
    const { resume } = this.#block;
    if (!resume)
      throw new PluginError(`the block ${block} yields a checkpoint and has no \`resume\``);
    const text = jsonOf(value, what);
    if (Buffer.byteLength(text) > MAX_STATE_BYTES) {
      throw new PluginError(
        `${what} has more than ${MAX_STATE_BYTES} bytes: write files to HEDDLE_CHECKPOINT_DIR, and yield their names`,
      );
    }
    const { data, error } = resume.safeParse(JSON.parse(text));
    if (error) throw this.#fault(what, error.issues);
    return { text, data };
  }

  async #keep(name: string, bytes: Uint8Array): Promise<void> {
    const { outputs = {} } = this.#block;
    const output = Object.hasOwn(outputs, name) ? outputs[name] : undefined;
    const { block, artifactDirectory } = this.#orders;
    if (!output) {
      const names = Object.keys(outputs).join(", ") || "none";
      throw new PluginError(`the block ${block} has no output ${name}; it has ${names}`);
    }
    this.#outputs.set(name, bytes);
    const total = [...this.#outputs.values()].reduce((sum, each) => sum + each.byteLength, 0);
    if (total > MAX_OUTPUT_BYTES) {
      throw new PluginError(
        `its outputs have more than ${MAX_OUTPUT_BYTES} bytes: write larger ones as files in HEDDLE_ARTIFACT_DIR`,
      );
    }
    const path = join(artifactDirectory, output.artifact);
    try {
      await mkdir(dirname(path), { recursive: true });
      await writeFile(path, bytes);
    } catch (cause) {
      throw new UnwritableFile(`the artifact ${path}`, cause as Error);
    }
  }

  #report(line: Line): void {
    this.#waiting = { ...this.#waiting, ...line };
    if (!this.#timer || line["checkpoint"] !== undefined) this.#write();
  }

  #write(): void {
    const line = this.#waiting;
    this.#waiting = {};
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (Object.keys(line).length === 0) return;
    this.#timer = setTimeout(() => this.#write(), LINE_MS);
    const path = this.#orders.progressFile;
    try {
      appendFileSync(path, `${JSON.stringify(line)}\n`);
    } catch (cause) {
      throw new UnwritableFile(`a line of ${path}`, cause as Error);
    }
  }

  #fault(
    what: string,
    issues: readonly { readonly path: readonly PropertyKey[]; readonly message: string }[],
  ): PluginError {
    const [{ path, message } = { path: [], message: "it is of another form" }] = issues;
    const place = path.length > 0 ? `${path.map(String).join(".")}: ` : "";
    return new PluginError(
      `${what} is not as the block ${this.#orders.block} says: ${place}${message}`,
    );
  }
}

/** A text and bytes as they are; the rest as JSON. */
function bytesOf(value: unknown, name: string): Uint8Array {
  if (typeof value === "string") return Buffer.from(value);
  // A copy: the block may fill it again.
  if (value instanceof Uint8Array) return Uint8Array.from(value);
  return Buffer.from(jsonOf(value, `its output ${name}`));
}

function jsonOf(value: unknown, what: string): string {
  try {
    const text = JSON.stringify(value);
    if (text !== undefined) return text;
  } catch (cause) {
    throw new PluginError(`${what} has no JSON: ${(cause as Error).message}`, cause);
  }
  throw new PluginError(`${what} has no JSON`);
}
