import { join, relative } from "node:path";
import { AppError } from "@heddle/base/errors";
import type { Gpu } from "@heddle/contracts/generated/heddle/v1/Gpu";
import type { PlaceOffer } from "@heddle/node-agent/machine";
import type { PodGpus, PodSettings } from "../../config/pod-settings.ts";
import type { TaskPlan } from "../../records/task-plan.ts";
import { KubernetesApi, podAccess } from "./kubernetes-api.ts";
import {
  type Container,
  type Node,
  type OwnerReference,
  type Pod,
  type PodSpec,
  quantity,
  type Volume,
  type VolumeMount,
} from "./kubernetes-types.ts";
import { mergedTemplate, type PodTemplate, readPartsByName, readTemplate } from "./pod-template.ts";

const MAX_DEVICES = 1_024;

/** A path of the worker in a volume that Pods of its node can mount too. */
export interface SharedPath {
  readonly volume: Volume;
  readonly subPath: string;
}

/** The worker's own place in Kubernetes, from which its tasks' Pods follow. */
export class PodPlace {
  readonly api: KubernetesApi;
  readonly settings: PodSettings;
  readonly offer: PlaceOffer;
  readonly #pod: Pod;

  private constructor(
    api: KubernetesApi,
    settings: PodSettings,
    found: { readonly pod: Pod; readonly node: Node },
  ) {
    this.api = api;
    this.settings = settings;
    this.#pod = found.pod;
    this.offer = offerOf(found.pod, found.node, settings);
  }

  /** Rejects where the API server does not show the worker's own pod and node. */
  static async find(settings: PodSettings): Promise<PodPlace> {
    const api = new KubernetesApi(settings.access ?? podAccess());
    readTemplate("pod-template", settings.templateFile);
    readTemplate("pod-models", settings.modelsFile);
    readPartsByName("pod-profiles", settings.profilesFile);
    readPartsByName("pod-queues", settings.queuesFile);
    const pod = await api.get<Pod>(api.path("pods", settings.podName));
    const node = await api.get<Node>(`/api/v1/nodes/${pod.spec.nodeName}`);
    return new PodPlace(api, settings, { pod, node });
  }

  /**
   * What all Pods get, those of the queue and those of the profile; read for each Pod, as ConfigMaps change. Throws an
   * AppError `invalid_value`.
   */
  template({ profile, queue }: Pick<TaskPlan["spec"], "profile" | "queue">): PodTemplate {
    const { templateFile, queuesFile } = this.settings;
    const ofQueue = readPartsByName("pod-queues", queuesFile)[queue] ?? {};
    const all = mergedTemplate(readTemplate("pod-template", templateFile), ofQueue);
    if (profile === "") return all;
    const own = this.#profiles[profile];
    if (own !== undefined) return mergedTemplate(all, own);
    const message = `no profile "${profile}" is among those that --pod-profiles names here`;
    throw new AppError("invalid_value", message);
  }

  /** The labels of this worker's node: which profiles it has. */
  get labels(): Readonly<Record<string, string>> {
    const names = Object.keys(this.#profiles);
    return Object.fromEntries(names.map((name) => [`heddle/profile-${name}`, "true"]));
  }

  get #profiles() {
    return readPartsByName("pod-profiles", this.settings.profilesFile);
  }

  /** What the Pods of models get. */
  get modelTemplate(): PodTemplate {
    const { templateFile, modelsFile } = this.settings;
    return mergedTemplate(
      readTemplate("pod-template", templateFile),
      readTemplate("pod-models", modelsFile),
    );
  }

  /** The worker's own, whose image has the engines too. */
  get container(): Container {
    const [own] = this.#pod.spec.containers;
    if (own) return own;
    throw new AppError("invalid_value", `the pod ${this.settings.podName} has no container`);
  }

  get nodeName(): string {
    return this.#pod.spec.nodeName ?? "";
  }

  /** The node's address, for Pods in the node's own network. */
  get hostAddress(): string {
    return this.#pod.status?.hostIP ?? "";
  }

  /**
   * What makes the worker's pods: with it all Pods go. A worker's pod that is replaced takes over
   * the tasks of the one before, so it is not their owner.
   */
  get owner(): OwnerReference | undefined {
    const owner = this.#pod.metadata.ownerReferences?.find(({ controller }) => controller);
    return owner && { ...owner, controller: false };
  }

  /** What Pods need to be on the worker's node and to read its images, as the worker does. */
  get inherited(): Partial<PodSpec> {
    const { tolerations, imagePullSecrets, priorityClassName, securityContext } = this.#pod.spec;
    return {
      ...(tolerations !== undefined && { tolerations }),
      ...(imagePullSecrets !== undefined && { imagePullSecrets }),
      ...(priorityClassName !== undefined && { priorityClassName }),
      securityContext: {
        ...(securityContext as object | undefined),
        runAsUser: process.getuid?.(),
        runAsGroup: process.getgid?.(),
      },
    };
  }

  /** Throws an AppError `invalid_value` for a path of the worker's container alone. */
  shared(path: string): SharedPath {
    const { volumes = [], containers } = this.#pod.spec;
    const mounts = containers.flatMap(({ volumeMounts = [] }) => volumeMounts);
    const mount = mounts
      .filter(({ mountPath }) => isBelow(mountPath, path))
      .sort((a, b) => b.mountPath.length - a.mountPath.length)[0];
    const volume = mount && volumes.find(({ name }) => name === mount.name);
    if (!mount || !volume || !isShareable(volume)) {
      const message = `${path} is in no volume that other pods of this node can mount: with --executor pod tasks and checkpoints lie in a persistent volume claim or a hostPath`;
      throw new AppError("invalid_value", message);
    }
    return { volume, subPath: subPathOf(mount, path) };
  }
}

function isShareable(volume: Volume): boolean {
  return ["persistentVolumeClaim", "hostPath", "nfs"].some((source) => source in volume);
}

function isBelow(folder: string, path: string): boolean {
  return path === folder || path.startsWith(folder.endsWith("/") ? folder : `${folder}/`);
}

function subPathOf({ mountPath, subPath = "" }: VolumeMount, path: string): string {
  return join(subPath, relative(mountPath, path));
}

/** The node's allocatable resources without those of the worker's own pod. */
function offerOf(pod: Pod, node: Node, settings: PodSettings): PlaceOffer {
  const { allocatable = {} } = node.status ?? {};
  const requests = pod.spec.containers.map(({ resources }) => resources?.requests ?? {});
  const left = (name: string) =>
    requests.reduce((sum, own) => sum - quantity(own[name]), quantity(allocatable[name]));
  return {
    id: "pods",
    gpus: devicesOf(node, settings),
    cpuMilli: Math.max(1, Math.floor(left("cpu") * 1_000)),
    memoryBytes: Math.max(1, Math.floor(left("memory"))),
  };
}

/** Devices that Kubernetes gives; which of them a Pod gets is the kubelet's or the driver's choice. */
function devicesOf(node: Node, { gpus }: PodSettings): Gpu[] | undefined {
  if (!gpus) return undefined;
  const { labels = {} } = node.metadata;
  const kind = gpus.by === "plugin" ? gpus.resource : gpus.template;
  // Written by the discovery of the vendor's operator.
  const vendor = gpus.by === "plugin" ? kind.slice(0, kind.indexOf("/")) : "nvidia.com";
  const name = labels[`${vendor}/gpu.product`] ?? kind;
  const memoryBytes = Number(labels[`${vendor}/gpu.memory`] ?? 0) * 2 ** 20;
  return Array.from({ length: deviceCount(node, gpus) }, (_, index) => ({
    index,
    uuid: `${kind}-${index}`,
    name,
    memoryBytes,
    memoryUsedBytes: 0,
    utilizationPercent: 0,
    temperatureCelsius: 0,
    powerWatts: 0,
    simulated: false,
    fault: "",
  }));
}

function deviceCount({ status }: Node, gpus: PodGpus): number {
  if (gpus.by === "claim") return Math.min(gpus.count, MAX_DEVICES);
  const there = quantity(status?.allocatable?.[gpus.resource]);
  return Math.min(gpus.count ?? there, there, MAX_DEVICES);
}
