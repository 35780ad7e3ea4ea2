import "reflect-metadata";
import type { AddressInfo } from "node:net";
import { KeyVerifier } from "@heddle/auth/key-verifier";
import { RateLimiter } from "@heddle/auth/rate-limiter";
import { SharedRun } from "@heddle/base/async/shared-run";
import { StepQueue } from "@heddle/base/async/step-queue";
import { MAX_KEYS } from "@heddle/control/apply";
import type { ApiKeyRecord } from "@heddle/control/state";
import { InferenceMetrics } from "@heddle/observability/inference-metrics";
import type { Logger } from "@heddle/observability/logger";
import { MetricsText } from "@heddle/observability/metrics-text";
import type { Provider, Type } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import type { NestFastifyApplication } from "@nestjs/platform-fastify";
import type { Registry } from "prom-client";
import { ROUTES } from "./api/cluster/cluster.controller.ts";
import { ClusterReport } from "./api/cluster/cluster-report.ts";
import { AUTHORITY_HASH } from "./api/cluster/join-tokens.controller.ts";
import { EventWatch } from "./api/jobs/event-watch.ts";
import { JobService } from "./api/jobs/job-service.ts";
import { PluginConfigs } from "./api/jobs/plugin-configs.ts";
import { StateChanges } from "./api/jobs/state-changes.ts";
import { PEPPER } from "./api/keys/keys.controller.ts";
import { LOG_READER } from "./api/logs/job-logs.controller.ts";
import { ModelPulls } from "./api/models/model-pulls.ts";
import { CONTROL_PLANE, type ControlPlane } from "./control-plane/control-plane.ts";
import { AccessCheck, type OnLimited } from "./http/access.ts";
import { ErrorFilter } from "./http/error-filter.ts";
import { HEARTBEAT_MS } from "./http/event-stream.ts";
import { createHttpAdapter, type HttpLimits } from "./http/fastify-server.ts";
import { IdempotentChanges } from "./http/idempotent-changes.ts";
import { LastUsed } from "./http/last-used.ts";
import { KeyLimiter } from "./http/limits/key-limiter.ts";
import { listRoutes } from "./http/route-table.ts";
import { Accounting, type UsageSink } from "./inference/accounting.ts";
import { ChatCompletions } from "./inference/chat/chat-completions.ts";
import type { InferenceDispatch } from "./inference/dispatch/inference-port.ts";
import { InFlight } from "./inference/in-flight.ts";
import { InferenceCalls, type InferenceParts } from "./inference/inference-calls.ts";
import { CONTROLLERS, masterModule } from "./master.module.ts";
import { exposeClusterMetrics } from "./metrics/cluster-gauges.ts";
import { ClusterMetrics } from "./metrics/cluster-metrics.ts";
import { JobFigures } from "./metrics/job-figures.ts";
import { exposeParameterServerMetrics } from "./metrics/parameter-server-metrics.ts";
import { exposeRaftMetrics } from "./metrics/raft-metrics.ts";
import { Throughput } from "./metrics/throughput.ts";
import { exposeTrainingMetrics } from "./metrics/training-metrics.ts";
import { ModelCatalog } from "./models/model-catalog.ts";
import { loadBlockers } from "./nodes/machine-offers.ts";
import { NODE_DIRECTORY, type NodeDirectory } from "./nodes/node-directory.ts";
import type { JobExplainer } from "./orchestration/scheduling/job-explainer.ts";
import { replicaBlockers } from "./orchestration/scheduling/replica-blockers.ts";
import { createScheduling, type Scheduling } from "./orchestration/scheduling/scheduling.ts";
import { ProgressBook } from "./orchestration/tasks/progress-book.ts";
import { ArtifactReader } from "./task-output/artifact-reader.ts";
import type { LogReader } from "./task-output/log-reader.ts";

export interface MasterOptions {
  readonly control: ControlPlane;
  readonly dispatch: InferenceDispatch;
  readonly directory: NodeDirectory;
  readonly pepper: Uint8Array;
  readonly logger: Logger;
  readonly registry: Registry;
  readonly usageSink: UsageSink;
  readonly masterId: string;
  readonly version: string;
  readonly dataDirectory: string;
  readonly host: string;
  /** 0 chooses a free one. */
  readonly port: number;
  readonly http: HttpLimits;
  /**
   * The hash in join tokens of the authority that signs the nodes' certificates; undefined without
   * TLS.
   */
  readonly authorityHash?: string | undefined;
  /** Calls that wait on this master for a replica. */
  readonly queued: () => number;
  /** Inference calls at once. */
  readonly maxCalls: number;
  /** The maximum duration of one call. */
  readonly deadlineMs: number;
  /** Of this master's scheduling loop; without one, plans are made on demand. */
  readonly scheduling?: Scheduling | undefined;
  /** The progress of jobs at this master; empty if absent. */
  readonly progress?: ProgressBook | undefined;
  readonly logs: LogReader;
  readonly artifacts: ArtifactReader;
  /** Heartbeat interval of a silent stream; 15,000 by default. */
  readonly heartbeatMs?: number;
  /** How long a client may read nothing of its stream; 60,000 by default. */
  readonly stallMs?: number;
  /** Further controllers, whose routes need permissions too. */
  readonly controllers?: readonly Type[];
}

/** A listening master. */
export interface Master {
  readonly url: string;
  /** Admits no more calls, lets the running ones end for `graceMs`, and aborts the rest. */
  close(graceMs: number): Promise<void>;
}

/** Builds the HTTP side on the given ports and listens. */
export async function createMaster(options: MasterOptions): Promise<Master> {
  const controllers = [...CONTROLLERS, ...(options.controllers ?? [])];
  const inFlight = new InFlight(options.maxCalls);
  const { scheduling = createScheduling(options.control), progress = new ProgressBook() } = options;
  const waits = new StateChanges(options.control, progress);
  const views = new StepQueue("views of the cluster");
  exposeTrainingMetrics(options.registry, options.control, progress, views);
  exposeParameterServerMetrics(options.registry, options.directory);
  const lastUsed = new LastUsed();
  const throughput = new Throughput(options.control, options.directory, views);
  const verifier = new KeyVerifier<ApiKeyRecord>({
    lookup: (id) => options.control.state.keys.get(id),
    pepper: options.pepper,
    now: Date.now,
  });
  const report = reportFor(options, inFlight, views);
  const waitsFor = (deployment: string) => [
    ...replicaBlockers(options.control.state, scheduling.plans, deployment),
    ...loadBlockers(deployment, options.directory.nodes(), options.control),
  ];
  const models = new ModelCatalog(options.control, options.directory, waitsFor);
  const limits = limitsFor(options);
  const metrics = inferenceMetrics(options, report, views);
  const calls = callsFor(options, { limits, metrics, models, inFlight });
  const onLimited: OnLimited = (permission, { code }) => {
    if (permission === "inference:create") metrics.failed("", code);
  };
  const app = await NestFactory.create<NestFastifyApplication>(
    masterModule(controllers, [
      ...partsFor(options, inFlight),
      ...jobParts(options, scheduling.explainer, progress, waits),
      { provide: AUTHORITY_HASH, useValue: options.authorityHash ?? null },
      { provide: ClusterMetrics, useValue: clusterMetrics(options, scheduling, throughput, views) },
      { provide: ClusterReport, useValue: report },
      { provide: MetricsText, useValue: new MetricsText(options.registry, views) },
      { provide: StepQueue, useValue: views },
      { provide: ModelCatalog, useValue: models },
      { provide: ChatCompletions, useValue: new ChatCompletions(calls) },
      { provide: LastUsed, useValue: lastUsed },
      { provide: ROUTES, useValue: listRoutes(controllers) },
    ]),
    createHttpAdapter(options.http, new AccessCheck(verifier, lastUsed, limits, onLimited)),
    { bodyParser: false, logger: false, abortOnError: false, forceCloseConnections: true },
  );
  app.useGlobalFilters(new ErrorFilter(listRoutes(controllers), options.logger));
  await app.listen(options.port, options.host);
  const { port } = app.getHttpServer().address() as AddressInfo;
  const host = options.host.includes(":") ? `[${options.host}]` : options.host;
  return {
    url: `http://${host}:${port}`,
    close: async (graceMs) => {
      waits.close();
      await inFlight.close(graceMs);
      await app.close();
      throughput.close();
    },
  };
}

/** The cluster's values, which /metrics shows too. */
function clusterMetrics(
  options: MasterOptions,
  scheduling: Scheduling,
  throughput: Throughput,
  views: StepQueue,
): ClusterMetrics {
  const { control, directory, masterId, queued, registry } = options;
  const jobs = new JobFigures(control, scheduling);
  const parts = { control, directory, masterId, queued, throughput, jobs, views };
  const metrics = new ClusterMetrics(parts);
  exposeClusterMetrics(registry, metrics);
  if (control.group) exposeRaftMetrics(registry, control.group);
  return metrics;
}

function reportFor(options: MasterOptions, inFlight: InFlight, views: StepQueue): ClusterReport {
  const { control, directory, masterId, version, dataDirectory } = options;
  const parts = { control, directory, inFlight, masterId, version, dataDirectory, views };
  return new ClusterReport(parts);
}

/** The metrics of calls, without those of removed models. */
function inferenceMetrics(
  { registry, control }: MasterOptions,
  report: ClusterReport,
  views: StepQueue,
): InferenceMetrics {
  const load = new SharedRun(views, (inSteps) => inSteps(() => report.load()));
  const metrics = new InferenceMetrics(registry, {
    load: () => load.get(),
    isRegistered: (model) => control.state.models.has(model),
  });
  control.onApplied((command) => {
    if (command === undefined || command.type === "model.remove") metrics.dropRemoved();
  });
  return metrics;
}

function limitsFor({ control }: MasterOptions): KeyLimiter {
  const now = () => performance.now();
  const limiter = new RateLimiter({ now, maxKeys: MAX_KEYS });
  const { group } = control;
  return new KeyLimiter({ limiter, now, group: group && (() => group.status()) });
}

function callsFor(
  options: MasterOptions,
  parts: Pick<InferenceParts, "limits" | "models" | "inFlight"> & {
    readonly metrics: InferenceMetrics;
  },
): InferenceCalls {
  const { metrics, ...rest } = parts;
  return new InferenceCalls({
    ...rest,
    accounting: new Accounting(metrics, options.usageSink),
    dispatch: options.dispatch,
    deadlineMs: options.deadlineMs,
    heartbeatMs: options.heartbeatMs ?? HEARTBEAT_MS,
    stallMs: options.stallMs,
  });
}

/** The parts for the controllers. */
function partsFor(options: MasterOptions, inFlight: InFlight): Provider[] {
  return [
    { provide: CONTROL_PLANE, useValue: options.control },
    { provide: NODE_DIRECTORY, useValue: options.directory },
    { provide: PEPPER, useValue: options.pepper },
    { provide: LOG_READER, useValue: options.logs },
    { provide: ArtifactReader, useValue: options.artifacts },
    { provide: ModelPulls, useValue: new ModelPulls(options.directory, inFlight) },
  ];
}

/** The parts of the job routes. */
function jobParts(
  { control, pepper, directory }: MasterOptions,
  explainer: JobExplainer,
  progress: ProgressBook,
  waits: StateChanges,
): Provider[] {
  const changes = new IdempotentChanges(control, pepper);
  const jobs = new JobService({
    ...{ control, explainer, changes, waits, progress, pepper },
    pluginConfigs: new PluginConfigs(directory),
  });
  return [
    { provide: IdempotentChanges, useValue: changes },
    { provide: JobService, useValue: jobs },
    { provide: EventWatch, useValue: new EventWatch(control, waits, progress) },
  ];
}
