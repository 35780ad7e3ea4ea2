import { SharedRun } from "@heddle/base/async/shared-run";
import { StepQueue } from "@heddle/base/async/step-queue";
import { InferenceMetrics } from "@heddle/observability/inference-metrics";
import { MetricsText } from "@heddle/observability/metrics-text";
import { Inject, Module } from "@nestjs/common";
import { Registry } from "prom-client";
import { MASTER_CONFIG } from "../config/config.module.ts";
import type { MasterConfig } from "../config/config.ts";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import {
  INFERENCE_DISPATCH,
  type InferenceDispatch,
} from "../inference/dispatch/inference-port.ts";
import { NODE_DIRECTORY, type NodeDirectory } from "../nodes/node-directory.ts";
import { ProgressModule } from "../nodes/progress/progress.module.ts";
import { SchedulingModule } from "../orchestration/scheduling/scheduling.module.ts";
import { exposeClusterMetrics } from "./cluster-gauges.ts";
import { ClusterMetrics } from "./cluster-metrics.ts";
import { ClusterReport } from "./cluster-report.ts";
import { exposeDispatchMetrics } from "./dispatch-metrics.ts";
import { JobFigures } from "./job-figures.ts";
import { MetricsSending } from "./metrics-sending.ts";
import { exposeParameterServerMetrics } from "./parameter-server-metrics.ts";
import { exposeRaftMetrics } from "./raft-metrics.ts";
import { hidesTenants, PUBLIC_METRICS } from "./tenant-series.ts";
import { Throughput } from "./throughput.ts";
import { TrainingMetrics } from "./training-metrics.ts";

/** What this master reports of itself and the cluster, in /metrics and to the API. */
@Module({
  imports: [ProgressModule, SchedulingModule],
  providers: [
    ClusterReport,
    JobFigures,
    MetricsSending,
    Throughput,
    TrainingMetrics,
    { provide: StepQueue, useFactory: () => new StepQueue("views of the cluster") },
    {
      provide: MetricsText,
      inject: [Registry, StepQueue],
      useFactory: (registry: Registry, views: StepQueue) => new MetricsText(registry, views),
    },
    {
      provide: PUBLIC_METRICS,
      inject: [Registry, StepQueue, CONTROL_PLANE],
      useFactory: (registry: Registry, views: StepQueue, control: ControlPlane) =>
        new MetricsText(registry, views, () => hidesTenants(control)),
    },
    {
      provide: InferenceMetrics,
      inject: [Registry, CONTROL_PLANE, ClusterReport, StepQueue],
      useFactory: openInferenceMetrics,
    },
    {
      provide: ClusterMetrics,
      inject: [
        CONTROL_PLANE,
        NODE_DIRECTORY,
        INFERENCE_DISPATCH,
        MASTER_CONFIG,
        Throughput,
        JobFigures,
        StepQueue,
      ],
      useFactory: openClusterMetrics,
    },
  ],
  exports: [
    ClusterMetrics,
    ClusterReport,
    InferenceMetrics,
    MetricsText,
    PUBLIC_METRICS,
    StepQueue,
  ],
})
export class MetricsModule {
  constructor(
    @Inject(Registry) registry: Registry,
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(NODE_DIRECTORY) directory: NodeDirectory,
    @Inject(INFERENCE_DISPATCH) dispatch: InferenceDispatch,
    @Inject(ClusterMetrics) cluster: ClusterMetrics,
  ) {
    exposeParameterServerMetrics(registry, directory);
    exposeClusterMetrics(registry, cluster);
    if (control.group) exposeRaftMetrics(registry, control.group);
    exposeDispatchMetrics(registry, () => ({
      ...dispatch.stats(),
      workerLost: directory.workersLost,
    }));
  }
}

/** The metrics of calls, without those of removed models. */
function openInferenceMetrics(
  registry: Registry,
  control: ControlPlane,
  report: ClusterReport,
  views: StepQueue,
): InferenceMetrics {
  const load = new SharedRun(views, (inSteps) => inSteps(() => report.load()));
  let ids: ReadonlySet<string> | undefined;
  const isRegistered = (model: string) => {
    ids ??= new Set([...control.state.models.values()].map(({ id }) => id));
    return ids.has(model);
  };
  const metrics = new InferenceMetrics(registry, { load: () => load.get(), isRegistered });
  control.onApplied((command) => {
    if (command && !command.type.startsWith("model.")) return;
    ids = undefined;
    if (command?.type !== "model.register") metrics.dropRemoved();
  });
  return metrics;
}

function openClusterMetrics(
  control: ControlPlane,
  directory: NodeDirectory,
  dispatch: InferenceDispatch,
  { masterId }: MasterConfig,
  throughput: Throughput,
  jobs: JobFigures,
  views: StepQueue,
): ClusterMetrics {
  const queues = () => dispatch.queues();
  return new ClusterMetrics({ control, directory, masterId, queues, throughput, jobs, views });
}
