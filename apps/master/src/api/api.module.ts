import { Module } from "@nestjs/common";
import { PEPPER } from "../control-plane/control-plane.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import { HttpModule } from "../http/http.module.ts";
import { IdempotentChanges } from "../http/idempotent-changes.ts";
import { MetricsModule } from "../metrics/metrics.module.ts";
import { ModelsModule } from "../models/models.module.ts";
import { SchedulingModule } from "../orchestration/scheduling/scheduling.module.ts";
import { Scheduling } from "../orchestration/scheduling/scheduling.ts";
import { ProgressModule } from "../orchestration/tasks/progress.module.ts";
import { ProgressBook } from "../orchestration/tasks/progress-book.ts";
import { TaskOutputModule } from "../task-output/task-output.module.ts";
import { ArtifactsController } from "./artifacts/artifacts.controller.ts";
import { ClusterController } from "./cluster/cluster.controller.ts";
import { HealthController } from "./cluster/health.controller.ts";
import { JoinTokensController } from "./cluster/join-tokens.controller.ts";
import { SettingsController } from "./cluster/settings.controller.ts";
import { WorkersController } from "./cluster/workers.controller.ts";
import { EventsController } from "./events/events.controller.ts";
import { EventWatch } from "./jobs/event-watch.ts";
import { JobService } from "./jobs/job-service.ts";
import { JobsController } from "./jobs/jobs.controller.ts";
import { PluginConfigs } from "./jobs/plugin-configs.ts";
import { ProjectsController } from "./jobs/projects.controller.ts";
import { QueuesController } from "./jobs/queues.controller.ts";
import { StateChanges } from "./jobs/state-changes.ts";
import { KeysController } from "./keys/keys.controller.ts";
import { JobLogsController } from "./logs/job-logs.controller.ts";
import { ModelPulls } from "./models/model-pulls.ts";
import { ModelsController } from "./models/models.controller.ts";

/** The orchestration API: jobs, models, keys, nodes and the cluster. */
@Module({
  imports: [
    ...[HttpModule, MetricsModule, ModelsModule, SchedulingModule],
    ...[ProgressModule, TaskOutputModule],
  ],
  controllers: [
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
  ],
  providers: [
    EventWatch,
    ModelPulls,
    PluginConfigs,
    StateChanges,
    {
      provide: JobService,
      inject: [
        ...[CONTROL_PLANE, Scheduling, IdempotentChanges, StateChanges],
        ...[ProgressBook, PluginConfigs, PEPPER],
      ],
      useFactory: openJobService,
    },
  ],
})
export class ApiModule {}

function openJobService(
  control: ControlPlane,
  { explainer }: Scheduling,
  changes: IdempotentChanges,
  waits: StateChanges,
  progress: ProgressBook,
  pluginConfigs: PluginConfigs,
  pepper: Uint8Array,
): JobService {
  return new JobService({ control, explainer, changes, waits, progress, pluginConfigs, pepper });
}
