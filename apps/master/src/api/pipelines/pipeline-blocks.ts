import { AppError, type ErrorCode, toAppError } from "@heddle/base/errors";
import { type Block, blockId, PIPELINE_BLOCKS } from "@heddle/contracts/api/pipelines/blocks";
import type { BlockView } from "@heddle/contracts/api/pipelines/operations";
import type { PipelineSpec, PipelineStep } from "@heddle/contracts/api/pipelines/spec";
import { RequestFaults, type ValidationFault } from "@heddle/contracts/validation";
import type { BlockDescription } from "@heddle/plugin-kit/host/description";
import type { HostedPlugin } from "@heddle/plugin-kit/host/hosted-plugin";
import { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import { Inject } from "@nestjs/common";
import { z } from "zod";
import { viewBlock, viewPorts } from "./pipeline-view.ts";
import { configFaults, type StepBlocks } from "./plan.ts";

/** The longest that a plugin may take for the job of one step. */
const JOB_MS = 2_000;
/** The codes of errors that are not about the step. */
const NOT_ITS_FAULT: ReadonlySet<ErrorCode> = new Set([
  "unavailable",
  "overloaded",
  "deadline_exceeded",
  "server_error",
  "cancelled",
]);

interface PluginBlock {
  readonly plugin: HostedPlugin;
  readonly block: BlockDescription;
}

/** The blocks of every cluster, and those of this master's plugins. */
export class PipelineBlocks {
  readonly #plugins: PluginSet;

  constructor(@Inject(PluginSet) plugins: PluginSet) {
    this.#plugins = plugins;
  }

  list(): readonly BlockView[] {
    return [...[...PIPELINE_BLOCKS.values()].map(viewBlock), ...this.#ofPlugins().map(viewOwn)];
  }

  /** The blocks of a pipeline's steps; plugins are asked what their steps run. */
  async ofSteps({ steps }: PipelineSpec): Promise<StepBlocks> {
    const own = this.#ofPlugins();
    const bySteps = new Map<string, Block | readonly ValidationFault[]>();
    const asked = Object.entries(steps).map(async ([name, step]) => {
      const [wanted = "", version] = step.block.split("@");
      const isWanted = (block: Pick<Block, "name" | "version">) =>
        block.name === wanted && (version === undefined || Number(version) === block.version);
      const known = PIPELINE_BLOCKS.get(wanted);
      const found = own.find((each) => isWanted({ ...each.block, name: nameOf(each) }));
      if (known && isWanted(known)) bySteps.set(name, known);
      else if (found) bySteps.set(name, await prepared(name, step, found));
    });
    await Promise.all(asked);
    const ids = [...PIPELINE_BLOCKS.values()].map(blockId);
    return { bySteps, known: [...ids, ...own.map(idOf)] };
  }

  #ofPlugins(): PluginBlock[] {
    return this.#plugins.usable.flatMap((plugin) =>
      (plugin.description?.blocks ?? []).map((block) => ({ plugin, block })),
    );
  }
}

/** A plugin's block with the job of this step, or what the plugin refuses in its config. */
async function prepared(
  step: string,
  { config, inputs }: PipelineStep,
  given: PluginBlock,
): Promise<Block | readonly ValidationFault[]> {
  const { plugin, block } = given;
  const call = { point: "block", name: block.name, config, inputs: Object.keys(inputs) } as const;
  try {
    const made = (await plugin.call(call, { timeoutMs: JOB_MS })) as ReturnType<Block["job"]>;
    const job = block.runs ? { ...made, algorithm: idOf(given) } : made;
    return {
      ...block,
      name: nameOf(given),
      config: z.looseObject({}),
      takesAny: false,
      outputs: () => block.outputs,
      job: () => job,
    };
  } catch (error) {
    const { code, message, param = "", cause } = toAppError(error);
    if (NOT_ITS_FAULT.has(code)) {
      const where = `The block ${idOf(given)} of the step ${step}: ${message}`;
      throw new AppError(code, where, { cause: error, retryAfterMs: 1_000 });
    }
    const faults = cause instanceof RequestFaults ? cause.faults : [];
    const own = { param, code: "invalid_value", message } as const;
    return configFaults(`steps.${step}`, faults.length > 0 ? faults : [own]);
  }
}

function nameOf({ plugin, block }: PluginBlock): string {
  return `${plugin.name}/${block.name}`;
}

function idOf(given: PluginBlock): string {
  return blockId({ name: nameOf(given), version: given.block.version });
}

function viewOwn(given: PluginBlock): BlockView {
  const { summary, config, inputs, outputs } = given.block;
  return { id: idOf(given), object: "block", summary, ...viewPorts(inputs, outputs), config };
}
