import { systemClock } from "@heddle/base/clock";
import { Global, Inject, Module, type OnApplicationShutdown } from "@nestjs/common";
import { MASTER_CONFIG } from "../../config/config.module.ts";
import type { MasterConfig } from "../../config/config.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { NodeRegistry } from "../../nodes/node-registry.ts";
import { RegistryReplicas } from "../../nodes/replicas/replica-source.ts";
import { ReplicaDispatch } from "./inference-dispatch.ts";
import { INFERENCE_DISPATCH } from "./inference-port.ts";

/** The dispatch of calls to the replicas on the attached workers. */
@Global()
@Module({
  providers: [
    {
      provide: ReplicaDispatch,
      inject: [NodeRegistry, CONTROL_PLANE, MASTER_CONFIG],
      useFactory: openDispatch,
    },
    { provide: INFERENCE_DISPATCH, useExisting: ReplicaDispatch },
  ],
  exports: [INFERENCE_DISPATCH],
})
export class DispatchModule implements OnApplicationShutdown {
  readonly #dispatch: ReplicaDispatch;

  constructor(@Inject(ReplicaDispatch) dispatch: ReplicaDispatch) {
    this.#dispatch = dispatch;
  }

  onApplicationShutdown(): void {
    this.#dispatch.close();
  }
}

function openDispatch(
  registry: NodeRegistry,
  control: ControlPlane,
  config: MasterConfig,
): ReplicaDispatch {
  return new ReplicaDispatch({
    replicas: new RegistryReplicas(registry, control),
    clock: systemClock,
    random: Math.random,
    // They may change.
    get maxQueued() {
      return config.maxQueued;
    },
    get maxWaitMs() {
      return config.maxWaitMs;
    },
    maxLoadingWaitMs: config.fixedTimes.maxLoadingWaitMs,
  });
}
