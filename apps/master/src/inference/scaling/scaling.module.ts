import { systemClock } from "@heddle/base/clock";
import type { Logger } from "@heddle/observability/logger";
import { Inject, Module, type OnApplicationShutdown } from "@nestjs/common";
import { LOGGER } from "../../config/config.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { NODE_DIRECTORY, type NodeDirectory } from "../../nodes/node-directory.ts";
import { INFERENCE_DISPATCH, type InferenceDispatch } from "../dispatch/inference-port.ts";
import { Autoscaler } from "./autoscaler.ts";

/** The numbers of replicas that follow the load. */
@Module({
  providers: [
    {
      provide: Autoscaler,
      inject: [CONTROL_PLANE, INFERENCE_DISPATCH, NODE_DIRECTORY, LOGGER],
      useFactory: openAutoscaler,
    },
  ],
})
export class ScalingModule implements OnApplicationShutdown {
  readonly #autoscaler: Autoscaler;

  constructor(@Inject(Autoscaler) autoscaler: Autoscaler) {
    this.#autoscaler = autoscaler;
  }

  onApplicationShutdown(): void {
    this.#autoscaler.close();
  }
}

function openAutoscaler(
  control: ControlPlane,
  dispatch: InferenceDispatch,
  directory: NodeDirectory,
  log: Logger,
): Autoscaler {
  return new Autoscaler({ control, dispatch, directory, clock: systemClock, log });
}
