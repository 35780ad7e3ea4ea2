import { type DynamicModule, Module } from "@nestjs/common";
import { workerConfigModule } from "./config/config.module.ts";
import type { WorkerOptions } from "./config/worker-options.ts";
import type { EnginePorts } from "./inference/engine-ports.ts";
import { inferenceModule } from "./inference/inference.module.ts";
import { ExecutorsModule } from "./tasks/executors.module.ts";
import { podPlaceModule } from "./tasks/pods/pod-place.module.ts";
import type { PodPlace } from "./tasks/pods/pod-place.ts";
import { TaskSessionsModule } from "./tasks/task-sessions.module.ts";
import { TaskTableModule } from "./tasks/task-table.module.ts";
import { WorkerState } from "./worker-state.ts";

@Module({})
class WorkerModule {}

/**
 * All of a worker on a node of its own: models and tasks. Modules start after those that they need
 * and close before them: tasks end, then logs are shipped, then the lease ends.
 */
export function workerModule(
  node: DynamicModule,
  options: WorkerOptions,
  engines: EnginePorts,
  podPlace: PodPlace | undefined,
): DynamicModule {
  return {
    module: WorkerModule,
    imports: [
      node,
      workerConfigModule(options),
      podPlaceModule(podPlace),
      ExecutorsModule,
      TaskTableModule,
      TaskSessionsModule,
      inferenceModule(engines),
    ],
    providers: [WorkerState],
  };
}
