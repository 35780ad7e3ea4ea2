import { type DynamicModule, Module, type Provider, type Type } from "@nestjs/common";
import { ArtifactsController } from "./api/artifacts/artifacts.controller.ts";
import { ClusterController } from "./api/cluster/cluster.controller.ts";
import { HealthController } from "./api/cluster/health.controller.ts";
import { JoinTokensController } from "./api/cluster/join-tokens.controller.ts";
import { SettingsController } from "./api/cluster/settings.controller.ts";
import { WorkersController } from "./api/cluster/workers.controller.ts";
import { EventsController } from "./api/events/events.controller.ts";
import { JobsController } from "./api/jobs/jobs.controller.ts";
import { ProjectsController } from "./api/jobs/projects.controller.ts";
import { QueuesController } from "./api/jobs/queues.controller.ts";
import { KeysController } from "./api/keys/keys.controller.ts";
import { JobLogsController } from "./api/logs/job-logs.controller.ts";
import { ModelsController } from "./api/models/models.controller.ts";
import { ChatController } from "./inference/chat/chat.controller.ts";

/** Every controller of the master; each of their routes declares its permission. */
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

/** Nest's module of the master: the routes, and the parts that `createMaster` built for them. */
export function masterModule(controllers: readonly Type[], providers: Provider[]): DynamicModule {
  return { module: MasterModule, controllers: [...controllers], providers };
}

@Module({})
class MasterModule {}
