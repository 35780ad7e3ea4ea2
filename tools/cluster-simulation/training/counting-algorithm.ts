import type { TrainerOrders } from "@heddle/contracts/trainer/orders";
import type { PluginAlgorithm } from "@heddle/training/plugins/plugin";
import type { TrainingLoop } from "@heddle/training/training-loop";
import { nodePlace } from "../../../apps/trainer/dist/run/job-shards.js";
import { here, type SimulatedProcess } from "../simulated-process.ts";
import { worldOf } from "../world.ts";
import { attemptCell, CELLS } from "./cells.ts";

export const COUNTING = "counting";
/** One for each of at most two shards. */
const TENSORS = ["left", "right"];
const MIN_STEP_US = 20_000;
const MAX_STEP_US = 400_000;

/** The orders of each trainer's process. */
export const ordersOf = new WeakMap<SimulatedProcess, TrainerOrders>();

/**
 * Each push adds one to the cell of its node and one to the cell of its attempt, in every tensor.
 * So the parameters are the number of applied pushes, by node and by attempt.
 */
export const countingAlgorithm: PluginAlgorithm = {
  config: { type: "object", properties: { rounds: { type: "integer" } }, required: ["rounds"] },
  plan: ({ rounds }) => ({
    parameters: TENSORS.map((name) => ({ name, shape: [CELLS], init: { kind: "zeros" } })),
    servers: { optimizer: { kind: "sgd", momentum: 0, nesterov: false }, learningRate: 1 },
    rounds: Number(rounds),
    pushesPerRound: 1,
    stepAfter: (round) => round,
    run: (loop) => count(loop, Number(rounds)),
  }),
};

async function count(loop: TrainingLoop, rounds: number): Promise<void> {
  const { client, parameters, done, signal } = loop;
  const process = here();
  const orders = process && ordersOf.get(process);
  if (!orders) throw new Error("a trainer of no simulated process");
  const { node, members } = nodePlace(orders.nodes, orders.rank, orders.tasks);
  const watch = worldOf(process).shards.trainer({ ...orders, node, members, process }, done);
  // The servers subtract what is pushed.
  const cells = new Float32Array(CELLS);
  cells[node] = -1;
  cells[attemptCell(orders.attempt)] = -1;
  const part = Object.fromEntries(TENSORS.map((name) => [name, cells]));
  try {
    watch.pulled(await client.pull(parameters), parameters);
    for (let round = done + 1; round <= rounds; round++) {
      const stepUs = process.dice.between(MIN_STEP_US, MAX_STEP_US);
      await new Promise<void>((resolve) => process.after(stepUs, resolve));
      signal.throwIfAborted();
      watch.pushes(round);
      await client.push(part, { weight: 1, learningRate: 1 });
      watch.pushed(round);
      watch.pulled(await client.pull(parameters), parameters);
      const state = { round: Float32Array.of(round) };
      await loop.report({ round, step: round, loss: 0, metrics: {}, state });
    }
  } finally {
    watch.ends();
  }
}
