import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { EngineOptions } from "@heddle/contracts/engine";
import { type LlamaEngine, startLlamaEngine } from "@heddle/engines/llama/parent/llama-engine";
import { writeTinyModel } from "../../gguf/tiny-model.ts";
import { EngineSession, withPending } from "../../testing/engine-session.ts";
import type { ChildTimeouts } from "../parent/engine-child.ts";

/** For tests: an engine in a real process, called by promises; without a path it writes a tiny model. */
export class TestSession extends EngineSession<LlamaEngine> {
  /** The reason of each restart of the engine. */
  readonly crashes: readonly string[];
  /** When it took requests again after that. */
  readonly recoveries: readonly number[];
  readonly #directory: string;

  /** Use open. */
  constructor(
    engine: LlamaEngine,
    directory: string,
    pending: ConstructorParameters<typeof EngineSession>[1],
    { crashes, recoveries }: Pick<TestSession, "crashes" | "recoveries">,
  ) {
    super(engine, pending);
    this.crashes = crashes;
    this.recoveries = recoveries;
    this.#directory = directory;
  }

  static async open(
    options: EngineOptions = {},
    modelPath?: string,
    timeouts?: Partial<ChildTimeouts>,
  ): Promise<TestSession> {
    const directory = await mkdtemp(join(tmpdir(), "heddle-engine-"));
    try {
      return await TestSession.#openIn(directory, options, modelPath, timeouts);
    } catch (error) {
      await rm(directory, { recursive: true });
      throw error;
    }
  }

  static async #openIn(
    directory: string,
    options: EngineOptions,
    modelPath: string | undefined,
    timeouts: Partial<ChildTimeouts> | undefined,
  ): Promise<TestSession> {
    const path = modelPath ?? join(directory, "tiny.gguf");
    if (modelPath === undefined) await writeTinyModel(path);
    const crashes: string[] = [];
    const recoveries: number[] = [];
    const [engine, pending] = await withPending((sink) =>
      startLlamaEngine({
        modelPath: path,
        options: { threads: 1, ...options },
        ...(timeouts && { child: { timeouts } }),
        onRestart: ({ message }) => crashes.push(message),
        onRecovered: () => recoveries.push(performance.now()),
        sink,
      }),
    );
    return new TestSession(engine, directory, pending, { crashes, recoveries });
  }

  override async close(): Promise<void> {
    await super.close();
    await rm(this.#directory, { recursive: true });
  }
}
