import type { PodGpus } from "../../config/pod-settings.ts";
import type { Container, Quantities, Volume, VolumeMount } from "./kubernetes-types.ts";
import type { PodPlace } from "./pod-place.ts";

/** Images for CUDA ask for all devices, and only the device plugin may give some. */
export const NO_DEVICES = { name: "NVIDIA_VISIBLE_DEVICES", value: "void" };

/** As the DaemonSet controller does: Kubernetes' scheduler still sees what the node has left. */
export function onNode(node: string): object {
  const matchFields = [{ key: "metadata.name", operator: "In", values: [node] }];
  const terms = { nodeSelectorTerms: [{ matchFields }] };
  return { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: terms } };
}

/** What asks Kubernetes for devices, in the parts of a Pod. */
interface DeviceParts {
  readonly limits: Quantities;
  readonly container: Pick<NonNullable<Container["resources"]>, "claims">;
  readonly spec: object;
}

/** A claim for each device: the template is of one. */
export function askForDevices(count: number, gpus: PodGpus | undefined): DeviceParts {
  if (count === 0 || !gpus) return { limits: {}, container: {}, spec: {} };
  if (gpus.by === "plugin") {
    return { limits: { [gpus.resource]: String(count) }, container: {}, spec: {} };
  }
  const { template: resourceClaimTemplateName } = gpus;
  const names = Array.from({ length: count }, (_, index) => `gpu-${index}`);
  return {
    limits: {},
    container: { claims: names.map((name) => ({ name })) },
    spec: { resourceClaims: names.map((name) => ({ name, resourceClaimTemplateName })) },
  };
}

export interface Mounts {
  readonly volumes: Volume[];
  readonly volumeMounts: VolumeMount[];
}

/** The worker's paths in a Pod, under the same names. */
export function mountsOf(
  place: PodPlace,
  paths: readonly { readonly path: string; readonly isReadOnly: boolean }[],
): Mounts {
  const volumes = new Map<string, Volume>();
  const volumeMounts = paths.map(({ path, isReadOnly }): VolumeMount => {
    const { volume, subPath } = place.shared(path);
    const name = `worker-${volume.name}`.slice(0, 63);
    volumes.set(name, { ...volume, name });
    return { name, mountPath: path, subPath, ...(isReadOnly && { readOnly: true }) };
  });
  return { volumes: [...volumes.values()], volumeMounts };
}
