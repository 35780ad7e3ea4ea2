import { dirname } from "node:path";
import type { TaskPlan } from "../../records/task-plan.ts";
import type { TaskLaunch } from "../executors/executor.ts";
import type { Container, Metadata, Pod, VolumeMount } from "./kubernetes-types.ts";
import { askForDevices, type Mounts, mountsOf, NO_DEVICES, onNode } from "./pod-parts.ts";
import type { PodPlace } from "./pod-place.ts";
import { type ContainerTemplate, mergedTemplate, type PodTemplate } from "./pod-template.ts";

/** The label that names a Pod's worker. */
export const OWNER_LABEL = "heddle.dev/node-id";
/** The label that names a Service's task. */
const TASK_LABEL = "heddle.dev/task";

/** Memory of the runner in addition to the task's. */
const RUNNER_BYTES = 96 * 2 ** 20;
/** The container of the program, for `kubectl logs` and templates. */
const CONTAINER = "task";
/** A Pod that outlives its worker, its lease and its runner ends this long after its maximum runtime. */
const DEADLINE_SLACK_S = 300;

/** What a Pod needs besides its task. */
export interface PodParts {
  readonly name: string;
  readonly nodeId: string;
  readonly place: PodPlace;
  /** The runner's folder and command line. */
  readonly runner: { readonly folder: string; readonly command: readonly string[] };
  /** The folder of the lease's file. */
  readonly leaseFolder: string;
  readonly controlFolder: string;
}

/** The Pod of a task: one container, which begins with the runner, on the worker's own node. */
export function podManifest(launch: TaskLaunch, parts: PodParts): Pod {
  const { place, name } = parts;
  const { hostNetwork, maxRuntimeMs, graceMs } = launch.plan.spec;
  const template = mergedTemplate({ spec: place.inherited }, place.template(launch.plan.spec));
  const { volumes, volumeMounts } = volumesOf(launch, parts);
  const { containers: [own = {}] = [], volumes: more = [], ...spec } = template.spec ?? {};
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: metadataOf(launch.plan, parts, template),
    spec: {
      restartPolicy: "Never",
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      ...spec,
      hostname: name,
      subdomain: place.settings.service,
      affinity: onNode(place.nodeName),
      terminationGracePeriodSeconds: Math.ceil(graceMs / 1_000) + 1,
      ...(hostNetwork && { hostNetwork: true, dnsPolicy: "ClusterFirstWithHostNet" }),
      ...(maxRuntimeMs > 0 && {
        activeDeadlineSeconds: Math.ceil(maxRuntimeMs / 1_000) + DEADLINE_SLACK_S,
      }),
      ...askForDevices(launch.plan.devices.length, place.settings.gpus).spec,
      volumes: [...volumes, ...more],
      containers: [containerOf(launch.plan, parts, own, volumeMounts)],
    },
  };
}

function metadataOf({ id, spec }: TaskPlan, parts: PodParts, { metadata }: PodTemplate): Metadata {
  const { owner, settings } = parts.place;
  return {
    name: parts.name,
    labels: {
      ...metadata?.labels,
      "app.kubernetes.io/managed-by": "heddle-worker",
      [TASK_LABEL]: settings.service,
      [OWNER_LABEL]: parts.nodeId,
      "heddle.dev/job": id.jobId,
      "heddle.dev/attempt": String(id.attempt),
      "heddle.dev/rank": String(id.rank),
    },
    annotations: {
      ...metadata?.annotations,
      "heddle.dev/job-name": spec.jobName,
      "heddle.dev/project": spec.project,
    },
    ...(owner && { ownerReferences: [owner] }),
  };
}

function containerOf(
  plan: TaskPlan,
  { place, runner, controlFolder }: PodParts,
  own: ContainerTemplate,
  volumeMounts: readonly VolumeMount[],
): Container {
  const { volumeMounts: ownMounts = [], env: ownVariables = [], ...container } = own;
  const securityContext = {
    allowPrivilegeEscalation: false,
    capabilities: { drop: ["ALL"] },
    readOnlyRootFilesystem: plan.spec.readOnly,
  };
  return {
    securityContext,
    ...container,
    name: CONTAINER,
    image: plan.spec.containerImage,
    command: [...runner.command, controlFolder],
    env: plan.devices.length === 0 ? [NO_DEVICES, ...ownVariables] : ownVariables,
    resources: resourcesOf(plan, place),
    volumeMounts: [...volumeMounts, ...ownMounts],
  };
}

function resourcesOf({ spec, devices }: TaskPlan, { settings }: PodPlace) {
  const { cpuMilli, memoryBytes } = spec;
  const asked = askForDevices(devices.length, settings.gpus);
  const limits = {
    ...(cpuMilli > 0 && { cpu: `${cpuMilli}m` }),
    ...(memoryBytes > 0 && { memory: String(memoryBytes + RUNNER_BYTES) }),
    ...asked.limits,
  };
  return { limits, requests: limits, ...asked.container };
}

/** The task's own paths of the worker's volume, under the same names: no other task's are seen. */
function volumesOf(
  { mounts, stdout, plan }: TaskLaunch,
  { place, runner, leaseFolder, controlFolder }: PodParts,
): Mounts {
  const paths = [
    ...mounts,
    { path: dirname(stdout), isReadOnly: false },
    { path: controlFolder, isReadOnly: false },
    { path: leaseFolder, isReadOnly: true },
    { path: runner.folder, isReadOnly: true },
  ];
  const { volumes, volumeMounts } = mountsOf(place, paths);
  if (plan.spec.readOnly) {
    volumes.push({ name: "tmp", emptyDir: {} });
    volumeMounts.push({ name: "tmp", mountPath: "/tmp" });
  }
  if (plan.spec.shmBytes > 0) {
    const emptyDir = { medium: "Memory", sizeLimit: String(plan.spec.shmBytes) };
    volumes.push({ name: "shm", emptyDir });
    volumeMounts.push({ name: "shm", mountPath: "/dev/shm" });
  }
  return { volumes, volumeMounts };
}
