import { type DynamicModule, Module, type Provider, type Type } from "@nestjs/common";
import { ArtifactsController } from "./artifacts/artifacts.controller.ts";
import { ChatController } from "./inference/chat.controller.ts";
import { EventsController } from "./jobs/events.controller.ts";
import { JobLogsController } from "./jobs/job-logs.controller.ts";
import { JobsController } from "./jobs/jobs.controller.ts";
import { ProjectsController } from "./jobs/projects.controller.ts";
import { QueuesController } from "./jobs/queues.controller.ts";
import { KeysController } from "./keys/keys.controller.ts";
import { ModelsController } from "./models/models.controller.ts";
import { ClusterController } from "./operations/cluster.controller.ts";
import { HealthController } from "./operations/health.controller.ts";
import { JoinTokensController } from "./operations/join-tokens.controller.ts";
import { WorkersController } from "./operations/workers.controller.ts";
import { SettingsController } from "./settings/settings.controller.ts";

/** Every controller of the master; each route in them declares its permission. */
export const CONTROLLERS: readonly Type[] = [
  ChatController,
  ModelsController,
  KeysController,
  JobsController,
  JobLogsController,
  ArtifactsController,
  EventsController,
  QueuesController,
  ProjectsController,
  WorkersController,
  ClusterController,
  SettingsController,
  JoinTokensController,
  HealthController,
];

/** Nest's view of the master: the routes, and the parts that `createMaster` has built for them. */
export function masterModule(controllers: readonly Type[], providers: Provider[]): DynamicModule {
  return { module: MasterModule, controllers: [...controllers], providers };
}

@Module({})
class MasterModule {}
