import type { Container, Pod } from "../../tasks/pods/kubernetes-types.ts";
import { askForDevices, mountsOf, NO_DEVICES, onNode } from "../../tasks/pods/pod-parts.ts";
import type { PodPlace } from "../../tasks/pods/pod-place.ts";
import { mergedTemplate } from "../../tasks/pods/pod-template.ts";

/** The label that names the worker of a model's Pod. */
export const MODEL_LABEL = "heddle.dev/model-of";
/** The container of the engine, for `kubectl logs` and templates. */
const CONTAINER = "engine";
/** The engine holds nothing that it would have to save. */
const GRACE_SECONDS = 2;

/** What the Pod of a model is made of. */
export interface ModelPodParts {
  readonly name: string;
  readonly nodeId: string;
  /** The name that the masters use. */
  readonly deployment: string;
  readonly devices: number;
  readonly command: readonly string[];
  /** The folder of its socket. */
  readonly folder: string;
  /** Folders with weights. */
  readonly weights: readonly string[];
}

/** The Pod of one engine: the worker's image on the worker's node, with its weights to read. */
export function modelPod(place: PodPlace, parts: ModelPodParts): Pod {
  const { owner, modelTemplate, inherited } = place;
  const template = mergedTemplate({ spec: inherited }, modelTemplate);
  const { containers: _, volumes: more = [], ...spec } = template.spec ?? {};
  const asked = askForDevices(parts.devices, place.settings.gpus);
  const { volumes, volumeMounts } = mountsOf(place, [
    { path: parts.folder, isReadOnly: false },
    ...parts.weights.map((path) => ({ path, isReadOnly: true })),
  ]);
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name: parts.name,
      labels: {
        ...template.metadata?.labels,
        "app.kubernetes.io/managed-by": "heddle-worker",
        [MODEL_LABEL]: parts.nodeId,
      },
      annotations: {
        ...template.metadata?.annotations,
        "heddle.dev/deployment": parts.deployment,
      },
      ...(owner && { ownerReferences: [owner] }),
    },
    spec: {
      restartPolicy: "Never",
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      ...spec,
      affinity: onNode(place.nodeName),
      terminationGracePeriodSeconds: GRACE_SECONDS,
      ...asked.spec,
      volumes: [...volumes, { name: "tmp", emptyDir: {} }, ...more],
      containers: [containerOf(place, parts, volumeMounts)],
    },
  };
}

function containerOf(
  { container: worker, modelTemplate, settings }: PodPlace,
  { devices, command }: ModelPodParts,
  volumeMounts: NonNullable<Container["volumeMounts"]>,
): Container {
  const [own = {}] = modelTemplate.spec?.containers ?? [];
  const { env = [], volumeMounts: ownMounts = [], resources, ...fields } = own;
  const { limits, container } = askForDevices(devices, settings.gpus);
  const inherited = worker.env?.filter(({ value }) => value !== undefined) ?? [];
  return {
    securityContext: {
      allowPrivilegeEscalation: false,
      capabilities: { drop: ["ALL"] },
      readOnlyRootFilesystem: true,
    },
    ...(worker["imagePullPolicy"] !== undefined && { imagePullPolicy: worker["imagePullPolicy"] }),
    ...fields,
    name: CONTAINER,
    ...(worker.image !== undefined && { image: worker.image }),
    command,
    env: [...inherited, ...(devices === 0 ? [NO_DEVICES] : []), ...env],
    resources: {
      limits: { ...resources?.limits, ...limits },
      requests: { ...resources?.requests, ...limits },
      ...container,
    },
    volumeMounts: [...volumeMounts, { name: "tmp", mountPath: "/tmp" }, ...ownMounts],
  };
}
