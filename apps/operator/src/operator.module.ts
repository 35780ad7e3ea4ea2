import { Heddle } from "@heddle/client/heddle";
import type { HeddleOptions } from "@heddle/client/transport";
import type { Log } from "@heddle/observability/logger";
import { createRegistry } from "@heddle/observability/registry";
import { CoreV1Api, KubeConfig } from "@kubernetes/client-node";
import {
  type DynamicModule,
  Inject,
  Injectable,
  type OnApplicationShutdown,
  type OnModuleInit,
  type Provider,
} from "@nestjs/common";
import { Registry } from "prom-client";
import type { PendingPodSettings } from "./capacity/pending-pod.ts";
import { PendingPods } from "./capacity/pending-pods.ts";
import { JobSubmitter } from "./jobs/job-submitter.ts";
import { KueueAdmission, type KueueSettings } from "./jobs/kueue-admission.ts";
import { TrainingJobs } from "./jobs/training-jobs.ts";
import { BindingHold } from "./kubernetes/binding-hold.ts";
import type { CustomResource, ResourceStatus } from "./kubernetes/custom-resource.ts";
import { EventRecorder } from "./kubernetes/event-recorder.ts";
import { NamespaceAccess } from "./kubernetes/namespace-access.ts";
import { ReconcileMetrics } from "./kubernetes/reconcile-metrics.ts";
import { apiFaultText } from "./kubernetes/resource-api.ts";
import { type Reconciler, ResourceController } from "./kubernetes/resource-controller.ts";
import { StatusWriter } from "./kubernetes/status-writer.ts";
import { InferenceModels } from "./models/inference-models.ts";
import { clusterKind, type OwnCluster } from "./settings/clusters.ts";
import { projectKind } from "./settings/projects.ts";
import { queueKind } from "./settings/queues.ts";
import { SettingsReconciler } from "./settings/settings-reconciler.ts";
import { workerKind } from "./settings/workers.ts";

export interface OperatorOptions {
  /** The masters, and the key for each request: it may be replaced. */
  readonly masters: Pick<HeddleOptions, "endpoint" | "auth">;
  /** Undefined means all namespaces. */
  readonly namespaces: readonly (string | undefined)[];
  /** The projects of jobs by their namespaces. */
  readonly projects: ReadonlyMap<string, readonly string[]>;
  /** For the objects of nodes and of the cluster itself; without it there are none. */
  readonly own: OwnCluster | undefined;
  /** The RoleBinding of each namespace that gives the operator its rights there, if they may go first. */
  readonly roleBinding?: string | undefined;
  /** For jobs that name a queue of Kueue; without it they need no admission. */
  readonly kueue?: KueueSettings | undefined;
  /** For Pods in the place of jobs that wait for room; without them there are none. */
  readonly pending?: PendingPodSettings | undefined;
  readonly log: Log;
}

/** The injection token of OperatorOptions. */
const OPTIONS = Symbol("OperatorOptions");

/** The controllers of all kinds. */
@Injectable()
export class ResourceOperator implements OnModuleInit, OnApplicationShutdown {
  readonly #controllers: Controller[] = [];
  readonly #options: OperatorOptions;
  readonly #config: KubeConfig;
  readonly #bindings: BindingHold | undefined;

  constructor(
    @Inject(OPTIONS) given: OperatorOptions,
    @Inject(KubeConfig) config: KubeConfig,
    @Inject(Heddle) heddle: Heddle,
    @Inject(ReconcileMetrics) metrics: ReconcileMetrics,
  ) {
    const { masters, namespaces, own, roleBinding: name, log } = given;
    this.#options = given;
    this.#config = config;
    const isSynced = (namespace: string) =>
      this.#controllers.every((controller) => controller.isSyncedIn(namespace));
    this.#bindings = name ? new BindingHold({ config, name, isSynced, log }) : undefined;
    const statuses = new StatusWriter(new EventRecorder(config, log));
    const bindings = this.#bindings;
    const options = { config, namespaces, cluster: own?.cluster, bindings, metrics, log };
    const control = <R extends CustomResource<unknown, ResourceStatus>>(
      reconciler: Reconciler<R>,
      places = namespaces,
    ) => {
      const controller = new ResourceController(reconciler, { ...options, namespaces: places });
      this.#controllers.push(controller);
    };
    const kueue = given.kueue && new KueueAdmission(config, given.kueue);
    const access = new NamespaceAccess(given.projects, own?.namespace);
    const submitter = new JobSubmitter(access, (rights) => new Heddle({ ...masters, ...rights }));
    control(new TrainingJobs(heddle, statuses, submitter, kueue));
    control(new InferenceModels(heddle, statuses, access));
    control(new SettingsReconciler(queueKind(heddle), statuses, access));
    control(new SettingsReconciler(projectKind(heddle), statuses, access));
    if (!own) return;
    control(new SettingsReconciler(workerKind(heddle, own), statuses, access), [own.namespace]);
    const cluster = clusterKind(heddle, config, own, log);
    control(new SettingsReconciler(cluster, statuses, access), [own.namespace]);
  }

  /** Whether it knows all objects that it watches. */
  get isReady(): boolean {
    return this.#controllers.every(({ isSynced }) => isSynced);
  }

  onModuleInit(): void {
    for (const controller of this.#controllers) controller.start();
    this.#bindings?.start(this.#options.namespaces.filter((name) => name !== undefined));
  }

  async onApplicationShutdown(): Promise<void> {
    if (await this.#isClusterDeleted()) await this.#abandon();
    await Promise.all([...this.#controllers, this.#bindings].map((each) => each?.close()));
  }

  /** Whether the cluster's own namespace is being deleted, and no operator comes after this one. */
  async #isClusterDeleted(): Promise<boolean> {
    const { own, log } = this.#options;
    if (!own) return false;
    try {
      const { metadata } = await this.#config
        .makeApiClient(CoreV1Api)
        .readNamespace({ name: own.namespace });
      return metadata?.deletionTimestamp !== undefined;
    } catch (error) {
      log.warn({ why: apiFaultText(error) }, "the own namespace could not be read");
      return false;
    }
  }

  /** No later operator would remove the finalizers: their namespaces could not be deleted. */
  async #abandon(): Promise<void> {
    const { log } = this.#options;
    log.info({}, "the cluster's namespace is being deleted: all finalizers are removed");
    try {
      await Promise.all(this.#controllers.map((controller) => controller.abandon()));
      await this.#bindings?.releaseAll();
    } catch (error) {
      log.error({ why: apiFaultText(error) }, "finalizers are left");
    }
  }
}

type Controller = Pick<
  ResourceController<never>,
  "isSynced" | "isSyncedIn" | "start" | "abandon" | "close"
>;

class OperatorModule {}

export function operatorModule(options: OperatorOptions): DynamicModule {
  const { masters, own, pending, log } = options;
  const pendingPods: Provider[] =
    own && pending
      ? [
          {
            provide: PendingPods,
            inject: [KubeConfig, Heddle],
            useFactory: (config: KubeConfig, heddle: Heddle) =>
              new PendingPods({ config, heddle, ...own, settings: pending, log }),
          },
        ]
      : [];
  return {
    module: OperatorModule,
    providers: [
      ResourceOperator,
      { provide: OPTIONS, useValue: options },
      { provide: Registry, useFactory: () => createRegistry("operator") },
      {
        provide: ReconcileMetrics,
        inject: [Registry],
        useFactory: (registry: Registry) => new ReconcileMetrics(registry),
      },
      { provide: KubeConfig, useFactory: loadedConfig },
      { provide: Heddle, useFactory: () => new Heddle(masters) },
      ...pendingPods,
    ],
  };
}

/** The configuration of the pod's service account, or of KUBECONFIG. */
function loadedConfig(): KubeConfig {
  const config = new KubeConfig();
  config.loadFromDefault();
  return config;
}
