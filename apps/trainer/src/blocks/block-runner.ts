import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { AppError } from "@heddle/base/errors";
import { blockId } from "@heddle/contracts/api/pipelines/blocks";
import type { BlockOrders } from "@heddle/contracts/trainer/block-orders";
import { validate } from "@heddle/contracts/validation";
import type { Log } from "@heddle/observability/logger";
import { loadPlugin } from "@heddle/plugin-kit/loading/load-plugin";
import type { BlockStep, BlockUpdate, PluginBlock } from "@heddle/plugin-kit/points/blocks";
import { PluginError } from "../plans/plugin/plugin-error.ts";
import { BlockCheckpoints } from "./block-checkpoints.ts";
import { BlockResults } from "./block-results.ts";

/** Runs a step of a plugin's block to its end, and keeps what it yields. */
export async function runBlock(orders: BlockOrders, signal: AbortSignal, log: Log): Promise<void> {
  const block = await loadBlock(orders, log);
  const config = readConfig(block, orders);
  const checkpoints = new BlockCheckpoints(orders.checkpointDirectory, orders.attempt);
  const results = new BlockResults(block, orders, checkpoints);
  const resumeFrom = await resumed(orders, checkpoints, results, log);
  const inputs = await inputsOf(orders);
  const step: BlockStep<Record<string, unknown>> = { config, inputs, resumeFrom, signal };
  for await (const update of updatesOf(block, step, orders.block)) await results.take(update);
  await results.end();
}

async function loadBlock({ entry, block: wanted }: BlockOrders, log: Log): Promise<PluginBlock> {
  const host = { kind: "worker", log: (message: string) => log.info({}, message) } as const;
  const { plugin, registry } = await loadPlugin(entry, host).catch((cause: Error) => {
    throw new PluginError(`the plugin ${entry.from} cannot be used: ${cause.message}`, cause);
  });
  const ids = new Map(
    [...registry.blocks.values()].map((block) => {
      return [blockId({ ...block, name: `${plugin.name}/${block.name}` }), block];
    }),
  );
  const block = ids.get(wanted);
  if (block?.run) return block;
  const have = [...ids.keys()].join(", ") || "none";
  const message = `the plugin ${entry.from} has changed since its worker started: it has no block ${wanted}, but ${have}; restart the worker`;
  throw new PluginError(message);
}

function readConfig(block: PluginBlock, { config, block: id }: BlockOrders) {
  try {
    return validate(block.config, config);
  } catch (cause) {
    throw new PluginError(`the config of the block ${id}: ${(cause as Error).message}`, cause);
  }
}

/** What the block gets as `resumeFrom`; the outputs of that checkpoint are restored. */
async function resumed(
  { resumeFrom: name }: BlockOrders,
  checkpoints: BlockCheckpoints,
  results: BlockResults,
  log: Log,
): Promise<unknown> {
  if (name === "") return undefined;
  const found = await checkpoints.find(name);
  if (found) return results.resume(found);
  log.warn({}, `the checkpoint ${name} is not on this worker: the step starts from its beginning`);
  return undefined;
}

async function inputsOf({ inputDirectory }: BlockOrders): Promise<Record<string, string>> {
  if (inputDirectory === undefined) return {};
  const names = await readdir(inputDirectory);
  return Object.fromEntries(names.map((name) => [name, join(inputDirectory, name)]));
}

/** What the block yields; its errors are thrown as such. */
async function* updatesOf(
  block: PluginBlock,
  step: BlockStep<Record<string, unknown>>,
  id: string,
): AsyncGenerator<BlockUpdate> {
  try {
    const updates = block.run?.(step);
    if (typeof updates?.[Symbol.asyncIterator] !== "function") {
      throw new PluginError(`the \`run\` of the block ${id} gives no async iterable`);
    }
    yield* updates;
  } catch (error) {
    throw blockError(id, error);
  }
}

/** A refusal is final; anything else may be otherwise in another attempt. */
function blockError(id: string, thrown: unknown): unknown {
  if (thrown instanceof PluginError) return thrown;
  const { message } = thrown instanceof Error ? thrown : { message: String(thrown) };
  const isFinal = thrown instanceof AppError && !thrown.retryable;
  const what = isFinal ? `the block ${id} refuses its step` : `the block ${id} failed`;
  const code = isFinal ? "invalid_value" : "unavailable";
  return new PluginError(`${what}: ${message.split("\n", 1)[0]}`, thrown, code);
}
