import type { Logger } from "@heddle/observability/logger";
import type { DynamicModule, ModuleMetadata } from "@nestjs/common";
import { ApiModule } from "./api/api.module.ts";
import { configModule } from "./config/config.module.ts";
import type { MasterConfig } from "./config/config.ts";
import { ConsoleModule } from "./console/console.module.ts";
import { controlPlaneModule, type OpenControlPlane } from "./control-plane/control-plane.module.ts";
import { EventLogModule } from "./control-plane/event-log/event-log.module.ts";
import { DocumentsModule } from "./documents/documents.module.ts";
import { HttpModule } from "./http/http.module.ts";
import { CallsModule } from "./inference/calls.module.ts";
import { DispatchModule } from "./inference/dispatch/dispatch.module.ts";
import { InferenceModule } from "./inference/inference.module.ts";
import { ScalingModule } from "./inference/scaling/scaling.module.ts";
import { MetricsModule } from "./metrics/metrics.module.ts";
import { ModelsModule } from "./models/models.module.ts";
import { NodesModule } from "./nodes/nodes.module.ts";
import { OrchestrationModule } from "./orchestration/orchestration.module.ts";
import { TasksModule } from "./orchestration/tasks/tasks.module.ts";
import { PluginsModule } from "./plugins/plugins.module.ts";
import { TaskOutputModule } from "./task-output/task-output.module.ts";
import { UsageModule } from "./usage/usage.module.ts";

type Imports = NonNullable<ModuleMetadata["imports"]>;

/** Nodes, dispatch to them, and what the leader does; tests script or leave out some. */
const CLUSTER: Imports = [
  NodesModule,
  DispatchModule,
  ScalingModule,
  OrchestrationModule,
  TasksModule,
];

class MasterModule {}

/**
 * All of a master on an open control plane. Modules start after those that they need and close
 * before them; the global ones start in the order of this list, before all others.
 */
export function masterModule(
  config: MasterConfig,
  logger: Logger,
  open: OpenControlPlane,
  cluster: Imports = CLUSTER,
): DynamicModule {
  return {
    module: MasterModule,
    imports: [
      configModule(config, logger),
      controlPlaneModule(open),
      PluginsModule,
      EventLogModule,
      DocumentsModule,
      UsageModule,
      CallsModule,
      ...cluster,
      TaskOutputModule,
      ModelsModule,
      MetricsModule,
      HttpModule,
      InferenceModule,
      ApiModule,
      ConsoleModule,
    ],
  };
}
