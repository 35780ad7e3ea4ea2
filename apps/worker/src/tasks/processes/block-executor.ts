import { blockId } from "@heddle/contracts/api/pipelines/blocks";
import type { BlockOrders } from "@heddle/contracts/trainer/block-orders";
import { childFlags } from "@heddle/plugin-kit/host/child-flags";
import type { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import type { HostedEntry } from "@heddle/plugin-kit/loading/plugin-list";
import { codeFolders } from "@heddle/plugin-kit/loading/plugin-source";
import {
  type Executor,
  LaunchError,
  type TaskHandle,
  type TaskLaunch,
} from "../executors/executor.ts";
import type { ProcessExecutor } from "./process-executor.ts";
import { asTrainer, trainerProgram } from "./trainer-program.ts";

interface RunnableBlock {
  readonly entry: HostedEntry;
  /** Node's flags for the plugin's processes. */
  readonly flags: readonly string[];
  /** Its code, which may lie where other users may not pass. */
  readonly mounts: TaskLaunch["mounts"];
}

/**
 * Runs steps of plugins' blocks, each as a process that is held to what the list of plugins allows.
 * It is isolated, bounded, killed and adopted as any other task's.
 */
export class BlockExecutor implements Executor {
  readonly name = "block";
  readonly #processes: ProcessExecutor;
  readonly #blocks: ReadonlyMap<string, RunnableBlock>;

  private constructor(processes: ProcessExecutor, blocks: ReadonlyMap<string, RunnableBlock>) {
    this.#processes = processes;
    this.#blocks = blocks;
  }

  /** Undefined where no plugin has a block that runs. */
  static find(processes: ProcessExecutor, plugins: PluginSet): BlockExecutor | undefined {
    const blocks = plugins.loaded.flatMap(({ name: plugin, entry, description }) => {
      const own = (description?.blocks ?? []).filter(({ runs }) => runs);
      if (own.length === 0) return [];
      const code = codeFolders(entry);
      const mounts = code.map((path) => ({ path, isReadOnly: true }));
      const runnable = { entry, flags: childFlags(entry, code), mounts };
      const idOf = ({ name, version }: { readonly name: string; readonly version: number }) =>
        blockId({ name: `${plugin}/${name}`, version });
      return own.map((block) => [idOf(block), runnable] as const);
    });
    return blocks.length > 0 ? new BlockExecutor(processes, new Map(blocks)) : undefined;
  }

  get algorithms(): readonly string[] {
    return [...this.#blocks.keys()];
  }

  async prepare({ plan }: TaskLaunch): Promise<void> {
    this.#find(plan.spec.algorithm);
  }

  async start(launch: TaskLaunch): Promise<TaskHandle> {
    const { plan, environment } = launch;
    const { entry, flags, mounts } = this.#find(plan.spec.algorithm);
    const program = trainerProgram("blocks/block-main");
    const command = [process.execPath, ...flags, ...ownFlags(launch), program];
    const orders: BlockOrders = {
      entry,
      block: plan.spec.algorithm,
      config: JSON.parse(plan.spec.config || "{}"),
      attempt: plan.id.attempt,
      resumeFrom: plan.spec.resumeFrom,
      inputDirectory: environment["HEDDLE_INPUT_DIR"],
      checkpointDirectory: launch.checkpointDirectory,
      artifactDirectory: environment["HEDDLE_ARTIFACT_DIR"] ?? "",
      progressFile: environment["HEDDLE_PROGRESS_FILE"] ?? "",
    };
    const input = JSON.stringify(orders);
    const withCode = { ...launch, mounts: [...launch.mounts, ...mounts] };
    return asTrainer(await this.#processes.startProgram(withCode, { command, input }), false);
  }

  async adopt(launch: TaskLaunch, record: unknown): Promise<TaskHandle | undefined> {
    const handle = await this.#processes.adopt(launch, record);
    return handle && asTrainer(handle, false);
  }

  /** The executor of processes sweeps them by their marks. */
  async sweep(): Promise<number> {
    return 0;
  }

  #find(id: string): RunnableBlock {
    const found = this.#blocks.get(id);
    if (found) return found;
    const message = `this worker's plugins have no block ${id}, but ${this.algorithms.join(", ")}`;
    throw new LaunchError("LaunchFailed", message);
  }
}

/** What the task may touch beyond its plugin's files, and its heap, which later flags decide. */
function ownFlags({ plan, environment, mounts, workingDirectory }: TaskLaunch): string[] {
  const { HEDDLE_INPUT_DIR: inputs } = environment;
  const readable = [...mounts.map(({ path }) => path), ...(inputs === undefined ? [] : [inputs])];
  const writable = mounts.flatMap(({ path, isReadOnly }) => (isReadOnly ? [] : [path]));
  const memoryMib = Math.floor(plan.spec.memoryBytes / 2 ** 20);
  return [
    ...[...readable, workingDirectory].map((path) => `--allow-fs-read=${path}`),
    ...writable.map((path) => `--allow-fs-write=${path}`),
    ...(memoryMib > 0 ? [`--max-old-space-size=${memoryMib}`] : []),
  ];
}
