import { Heddle } from "@heddle/client/heddle";
import type { Log } from "@heddle/observability/logger";
import { KubeConfig } from "@kubernetes/client-node";
import {
  type DynamicModule,
  Inject,
  Injectable,
  type OnApplicationShutdown,
  type OnModuleInit,
} from "@nestjs/common";
import { TrainingJobs } from "./jobs/training-jobs.ts";
import { EventRecorder } from "./kubernetes/event-recorder.ts";
import { ResourceController } from "./kubernetes/resource-controller.ts";
import { InferenceModels } from "./models/inference-models.ts";

export interface OperatorOptions {
  /** HTTP addresses of the masters. */
  readonly endpoint: readonly string[];
  /** Read for each request: the key may be replaced. */
  readonly key: () => string;
  /** Undefined means all namespaces. */
  readonly namespaces: readonly (string | undefined)[];
  readonly log: Log;
}

/** The injection token of OperatorOptions. */
const OPTIONS = Symbol("OperatorOptions");

/** The controllers of all kinds. */
@Injectable()
export class ResourceOperator implements OnModuleInit, OnApplicationShutdown {
  readonly #controllers: readonly Pick<ResourceController<never>, "isSynced" | "start" | "close">[];

  constructor(
    @Inject(OPTIONS) { namespaces, log }: OperatorOptions,
    @Inject(KubeConfig) config: KubeConfig,
    @Inject(TrainingJobs) jobs: TrainingJobs,
    @Inject(InferenceModels) models: InferenceModels,
  ) {
    this.#controllers = [
      new ResourceController(config, namespaces, jobs, log),
      new ResourceController(config, namespaces, models, log),
    ];
  }

  /** Whether it knows all objects that it watches. */
  get isReady(): boolean {
    return this.#controllers.every(({ isSynced }) => isSynced);
  }

  onModuleInit(): void {
    for (const controller of this.#controllers) controller.start();
  }

  async onApplicationShutdown(): Promise<void> {
    await Promise.all(this.#controllers.map((controller) => controller.close()));
  }
}

class OperatorModule {}

export function operatorModule(options: OperatorOptions): DynamicModule {
  const { endpoint, key, log } = options;
  return {
    module: OperatorModule,
    providers: [
      ResourceOperator,
      { provide: OPTIONS, useValue: options },
      { provide: KubeConfig, useFactory: loadedConfig },
      { provide: Heddle, useFactory: () => new Heddle({ endpoint, auth: key }) },
      {
        provide: EventRecorder,
        inject: [KubeConfig],
        useFactory: (config: KubeConfig) => new EventRecorder(config, log),
      },
      {
        provide: TrainingJobs,
        inject: [Heddle, EventRecorder],
        useFactory: (heddle: Heddle, events: EventRecorder) => new TrainingJobs(heddle, events),
      },
      {
        provide: InferenceModels,
        inject: [Heddle, EventRecorder],
        useFactory: (heddle: Heddle, events: EventRecorder) => new InferenceModels(heddle, events),
      },
    ],
  };
}

/** That of the pod's service account, or of KUBECONFIG. */
function loadedConfig(): KubeConfig {
  const config = new KubeConfig();
  config.loadFromDefault();
  return config;
}
