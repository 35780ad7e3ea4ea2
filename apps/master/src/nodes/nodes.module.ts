import { systemClock } from "@heddle/base/clock";
import type { Logger } from "@heddle/observability/logger";
import { Health } from "@heddle/rpc/health";
import { GrpcHealthController } from "@heddle/rpc/nest/grpc-health.controller";
import { Global, Inject, Module, type OnApplicationShutdown } from "@nestjs/common";
import { LOGGER } from "../config/config.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import { AttachController } from "./attach.controller.ts";
import { NODE_DIRECTORY } from "./node-directory.ts";
import { NodeRegistry } from "./node-registry.ts";
import { ProgressModule } from "./progress/progress.module.ts";
import { DivisionsController } from "./replicas/divisions.controller.ts";
import { ReplicaController } from "./replicas/replica-controller.ts";

/** The nodes attached to this master, and the models that they serve. */
@Global()
@Module({
  imports: [ProgressModule],
  controllers: [AttachController, DivisionsController, GrpcHealthController],
  providers: [
    Health,
    NodeRegistry,
    { provide: NODE_DIRECTORY, useExisting: NodeRegistry },
    {
      provide: ReplicaController,
      inject: [NodeRegistry, CONTROL_PLANE, LOGGER],
      useFactory: (registry: NodeRegistry, control: ControlPlane, log: Logger) =>
        new ReplicaController(registry, control, { clock: systemClock, random: Math.random, log }),
    },
  ],
  exports: [NodeRegistry, NODE_DIRECTORY],
})
export class NodesModule implements OnApplicationShutdown {
  readonly #control: ControlPlane;
  readonly #health: Health;
  readonly #registry: NodeRegistry;
  readonly #replicas: ReplicaController;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(Health) health: Health,
    @Inject(NodeRegistry) registry: NodeRegistry,
    @Inject(ReplicaController) replicas: ReplicaController,
  ) {
    this.#control = control;
    this.#health = health;
    this.#registry = registry;
    this.#replicas = replicas;
  }

  /** Nodes learn of the removal of this master, so that they do not attach to it again. */
  onApplicationShutdown(): void {
    this.#health.stopServing();
    this.#replicas.close();
    const { fault } = this.#control;
    this.#registry.close(fault?.code === "member_removed" ? fault : undefined);
  }
}
