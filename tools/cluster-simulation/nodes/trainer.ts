import { AppError, toAppError } from "@heddle/base/errors";
import type { TrainerOrders } from "@heddle/contracts/trainer/orders";
import { createLogger } from "@heddle/observability/logger";
import { plainLines } from "@heddle/observability/plain-lines";
import { Dice } from "@heddle/simulation/dice";
import { runTrainer } from "../../../apps/trainer/dist/run/trainer.js";
import { exitCodeOf } from "../../../apps/trainer/dist/trainer-errors.js";
import { SimulatedProcess } from "../simulated-process.ts";
import { ordersOf } from "../training/counting-algorithm.ts";
import type { ClusterWorld } from "../world.ts";
import type { NodeMachine } from "./node-in-simulation.ts";
import type { TaskProgram } from "./running-task.ts";

/** As the trainer's program does after SIGTERM. */
const EXIT_LEFT = 143;
/** Between two requests for a checkpoint. */
const MIN_CHECKPOINT_US = 300_000;
const MAX_CHECKPOINT_US = 3_000_000;

interface TrainerTask {
  readonly name: string;
  readonly print: (line: string) => void;
  readonly exited: (exitCode: number) => void;
}

/** Starts the real trainer in a process of its own; only its algorithm is the simulation's. */
export function startTrainer(
  world: ClusterWorld,
  { name: machine, clock, disk }: NodeMachine,
  orders: TrainerOrders,
  { name, print, exited }: TrainerTask,
): TaskProgram {
  const { queue, seed } = world;
  const dice = new Dice(seed, `trainer ${name}`);
  const process = new SimulatedProcess(name, machine, { queue, dice, clock, disk });
  ordersOf.set(process, orders);
  const leaving = new AbortController();
  let take: (() => void) | undefined;
  const requestLater = () =>
    process.after(dice.between(MIN_CHECKPOINT_US, MAX_CHECKPOINT_US), () => {
      take?.();
      requestLater();
    });
  requestLater();
  const control = {
    signal: leaving.signal,
    log: createLogger({
      service: "trainer",
      level: "info",
      destination: plainLines({ write: (line) => print(line.trimEnd()) }),
    }),
    onCheckpointRequest: (request: () => void) => {
      take = request;
    },
  };
  const exit = (code: number) => {
    if (process.isAlive) exited(code);
  };
  process
    .run(() => runTrainer(orders, control))
    .then(
      () => exit(0),
      (error: unknown) => {
        if (leaving.signal.aborted) return exit(EXIT_LEFT);
        world.trace(() => `${name}: ${toAppError(error).code}: ${toAppError(error).message}`);
        exit(exitCodeOf(error));
      },
    );
  return {
    end: () => process.end(),
    signal: (signal) => {
      if (signal === "SIGKILL") return false;
      process.after(0, () => {
        if (signal === "SIGTERM") leaving.abort(new AppError("cancelled", "asked to leave"));
        else take?.();
      });
      return true;
    },
  };
}
