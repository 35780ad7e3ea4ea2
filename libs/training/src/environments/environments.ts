import { acrobot } from "./acrobot.ts";
import { cartPole } from "./cart-pole.ts";
import type { Environment } from "./environment.ts";
import { mountainCar } from "./mountain-car.ts";
import { pendulum } from "./pendulum.ts";

/** Creates an independent environment at each call. */
export type MakeEnvironment = () => Environment;

/** The built-in environments, by Gymnasium's names. */
export const ENVIRONMENTS: ReadonlyMap<string, MakeEnvironment> = new Map(
  [cartPole, acrobot, mountainCar, pendulum].map((make) => [make().name, make]),
);
