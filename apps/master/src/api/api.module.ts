import { Module } from "@nestjs/common";
import { HttpModule } from "../http/http.module.ts";
import { MetricsModule } from "../metrics/metrics.module.ts";
import { ModelsModule } from "../models/models.module.ts";
import { ProgressModule } from "../nodes/progress/progress.module.ts";
import { SchedulingModule } from "../orchestration/scheduling/scheduling.module.ts";
import { TaskOutputModule } from "../task-output/task-output.module.ts";
import { BindingsController } from "./access/bindings.controller.ts";
import { RolesController } from "./access/roles.controller.ts";
import { ServiceAccountsController } from "./access/service-accounts.controller.ts";
import { SignInController } from "./access/sign-in.controller.ts";
import { ArtifactsController } from "./artifacts/artifacts.controller.ts";
import { ApiDescription } from "./cluster/api-description.ts";
import { BackupController } from "./cluster/backup.controller.ts";
import { ClusterController } from "./cluster/cluster.controller.ts";
import { HealthController } from "./cluster/health.controller.ts";
import { JoinTokensController } from "./cluster/join-tokens.controller.ts";
import { MastersController } from "./cluster/masters.controller.ts";
import { SettingsController } from "./cluster/settings.controller.ts";
import { WorkersController } from "./cluster/workers.controller.ts";
import { ClientEventsController } from "./events/client-events.controller.ts";
import { CosignaturesController } from "./events/cosignatures.controller.ts";
import { EventLogController } from "./events/event-log.controller.ts";
import { EventProofsController } from "./events/event-proofs.controller.ts";
import { EventTilesController } from "./events/event-tiles.controller.ts";
import { EventsController } from "./events/events.controller.ts";
import { WebhooksController } from "./events/webhooks.controller.ts";
import { PastStatesController } from "./history/past-states.controller.ts";
import { PastStates } from "./history/past-states.ts";
import { EventWatch } from "./jobs/event-watch.ts";
import { JobAdmission } from "./jobs/job-admission.ts";
import { JobList } from "./jobs/job-list.ts";
import { JobChecks, JobService } from "./jobs/job-service.ts";
import { JobsController } from "./jobs/jobs.controller.ts";
import { PluginConfigs } from "./jobs/plugin-configs.ts";
import { QuotasController } from "./jobs/quotas.controller.ts";
import { StateChanges } from "./jobs/state-changes.ts";
import { KeysController } from "./keys/keys.controller.ts";
import { LimitsController } from "./limits/limits.controller.ts";
import { JobLogsController } from "./logs/job-logs.controller.ts";
import { JobMetricsController } from "./logs/job-metrics.controller.ts";
import { ModelPulls } from "./models/model-pulls.ts";
import { ModelsController } from "./models/models.controller.ts";
import { PipelineBlocks } from "./pipelines/pipeline-blocks.ts";
import { PipelineService } from "./pipelines/pipeline-service.ts";
import { PipelinesController } from "./pipelines/pipelines.controller.ts";
import { PluginRoutesModule } from "./plugins/plugin-routes.module.ts";
import { PluginsController } from "./plugins/plugins.controller.ts";
import { SecretsController } from "./secrets/secrets.controller.ts";
import { UsageController } from "./usage/usage.controller.ts";

/** The orchestration API: jobs, models, keys, nodes and the cluster. */
@Module({
  imports: [
    HttpModule,
    MetricsModule,
    ModelsModule,
    SchedulingModule,
    ProgressModule,
    TaskOutputModule,
    PluginRoutesModule,
  ],
  controllers: [
    SignInController,
    ModelsController,
    KeysController,
    RolesController,
    ServiceAccountsController,
    BindingsController,
    LimitsController,
    UsageController,
    JobsController,
    PipelinesController,
    JobLogsController,
    JobMetricsController,
    ArtifactsController,
    EventsController,
    ClientEventsController,
    CosignaturesController,
    EventLogController,
    EventProofsController,
    EventTilesController,
    WebhooksController,
    QuotasController,
    SecretsController,
    WorkersController,
    BackupController,
    ClusterController,
    MastersController,
    PastStatesController,
    SettingsController,
    PluginsController,
    JoinTokensController,
    HealthController,
  ],
  providers: [
    ApiDescription,
    EventWatch,
    ModelPulls,
    PastStates,
    PluginConfigs,
    StateChanges,
    JobList,
    JobService,
    PipelineBlocks,
    PipelineService,
    JobChecks,
    JobAdmission,
  ],
})
export class ApiModule {}
