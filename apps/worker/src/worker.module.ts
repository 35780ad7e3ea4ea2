import type { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import { type DynamicModule, Module } from "@nestjs/common";
import { workerConfigModule } from "./config/config.module.ts";
import type { WorkerOptions } from "./config/worker-options.ts";
import type { EnginePorts } from "./inference/engine-ports.ts";
import { inferenceModule } from "./inference/inference.module.ts";
import { ExecutorsModule } from "./tasks/executors.module.ts";
import { outerPlacesModule } from "./tasks/outer-places.module.ts";
import type { OuterPlaces } from "./tasks/outer-places.ts";
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
  places: OuterPlaces,
  plugins: PluginSet,
): DynamicModule {
  return {
    module: WorkerModule,
    imports: [
      node,
      workerConfigModule(options),
      outerPlacesModule(places, plugins),
      ExecutorsModule,
      TaskTableModule,
      TaskSessionsModule,
      inferenceModule(engines),
    ],
    providers: [WorkerState],
  };
}
