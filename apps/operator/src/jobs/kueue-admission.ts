import { RESOURCE_GROUP, RESOURCE_VERSION } from "@heddle/contracts/kubernetes/resource-kind";
import {
  CustomObjectsApi,
  type KubeConfig,
  PatchStrategy,
  setHeaderOptions,
} from "@kubernetes/client-node";
import { gangResources } from "../capacity/pending-pod.ts";
import type { ResourceMetadata } from "../kubernetes/custom-resource.ts";
import { unless } from "../kubernetes/resource-api.ts";
import type { TrainingJobObject } from "./job-status.ts";

const GROUP = "kueue.x-k8s.io";
const QUEUE_LABEL = `${GROUP}/queue-name`;
const MERGE = setHeaderOptions("Content-Type", PatchStrategy.MergePatch);

export interface KueueSettings {
  /** The version of Kueue's API, as v1beta2. */
  readonly version: string;
  /** The resource of GPUs that its quotas count. */
  readonly gpuResource: string;
}

/** Whether Kueue lets a job run, and what it says while it does not. */
export interface KueueAnswer {
  readonly isAdmitted: boolean;
  readonly message: string;
}

interface Workload {
  readonly spec: { readonly active?: boolean };
  readonly status?: {
    readonly conditions?: readonly {
      readonly type: string;
      readonly status: string;
      readonly message?: string;
    }[];
  };
}

/**
 * The Workloads of TrainingJobs that name a queue of Kueue, which admits them by its quotas. Heddle's own
 * scheduler then places the admitted ones.
 */
export class KueueAdmission {
  readonly #api: CustomObjectsApi;
  readonly #settings: KueueSettings;

  constructor(config: KubeConfig, settings: KueueSettings) {
    this.#api = config.makeApiClient(CustomObjectsApi);
    this.#settings = settings;
  }

  /** Asks for admission unless the job is suspended; undefined where the object names no queue. */
  async ask(object: TrainingJobObject): Promise<KueueAnswer | undefined> {
    if (!isQueued(object)) return undefined;
    const active = !object.spec.suspend;
    const target = this.#target(object.metadata);
    const present =
      (await unless(404, this.#api.getNamespacedCustomObject(target))) ??
      (await this.#create(object, active));
    const { spec, status } = present as Workload;
    if ((spec.active ?? true) !== active) {
      await this.#api.patchNamespacedCustomObject({ ...target, body: { spec: { active } } }, MERGE);
    }
    const of = (type: string) => status?.conditions?.find((each) => each.type === type);
    const isAdmitted = active && of("Admitted")?.status === "True";
    const message = of("QuotaReserved")?.message ?? "its Workload waits for Kueue";
    return { isAdmitted, message };
  }

  /** The quota of a job that has ended is free. */
  async release(object: TrainingJobObject): Promise<void> {
    if (!isQueued(object)) return;
    await unless(404, this.#api.deleteNamespacedCustomObject(this.#target(object.metadata)));
  }

  #create(object: TrainingJobObject, active: boolean): Promise<unknown> {
    const { namespace, name, uid, labels = {} } = object.metadata;
    const target = this.#target(object.metadata);
    const { tasks = 1, resources = {} } = object.spec;
    const template = {
      spec: {
        restartPolicy: "Never",
        containers: [
          {
            name: "task",
            image: object.spec.container_image ?? "heddle",
            resources: gangResources({ tasks, ...resources }, this.#settings.gpuResource),
          },
        ],
      },
    };
    const apiVersion = `${RESOURCE_GROUP}/${RESOURCE_VERSION}`;
    const owner = { apiVersion, kind: "TrainingJob", name, uid, controller: true };
    const body = {
      apiVersion: `${GROUP}/${this.#settings.version}`,
      kind: "Workload",
      metadata: { name: target.name, namespace, ownerReferences: [owner] },
      spec: {
        queueName: labels[QUEUE_LABEL],
        active,
        podSets: [{ name: "main", count: tasks, template }],
      },
    };
    const { name: _, ...place } = target;
    return this.#api.createNamespacedCustomObject({ ...place, body });
  }

  #target({ namespace, name, uid }: ResourceMetadata) {
    const { version } = this.#settings;
    const own = `trainingjob-${name.slice(0, 200)}-${uid.slice(0, 8)}`;
    return { group: GROUP, version, plural: "workloads", namespace, name: own };
  }
}

function isQueued({ metadata }: TrainingJobObject): boolean {
  return (metadata.labels?.[QUEUE_LABEL] ?? "") !== "";
}
