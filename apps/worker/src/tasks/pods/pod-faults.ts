import type { LaunchError } from "../executors/executor.ts";
import type { Pod } from "./kubernetes-types.ts";
import { isPodEnded } from "./pod-end.ts";

/** How long Kubernetes may find no room: what the worker's masters know may be of a moment ago. */
const NO_ROOM_MS = 60_000;
/** A Pod that is not in the API after this was deleted. */
const GONE_MS = 5_000;

const IMAGE_REASONS = /^(ImagePullBackOff|InvalidImageName|ErrImageNeverPull)$/;
/** The kubelet tries again, but the reason does not pass by itself. */
const CONTAINER_REASONS =
  /^(CreateContainerConfigError|CreateContainerError|RunContainerError|StartError|CrashLoopBackOff)$/;

/** Why the Pod's program will not begin, if so. */
export function launchFault(
  pod: Pod | undefined,
  waitedMs: number,
): Pick<LaunchError, "reason" | "message"> | undefined {
  if (!pod) {
    return waitedMs < GONE_MS ? undefined : fault("LaunchFailed", "it was deleted");
  }
  const { status = {}, spec } = pod;
  const state = status.containerStatuses?.[0]?.state;
  const { reason = "", message = "" } = state?.waiting ?? {};
  if (IMAGE_REASONS.test(reason)) {
    const image = spec.containers[0]?.image;
    const advice = "Check its name and that `imagePullSecrets` let the node read its registry";
    return fault("ImagePull", `the image ${image} could not be pulled: ${message}. ${advice}`);
  }
  if (CONTAINER_REASONS.test(reason)) return fault("LaunchFailed", `${reason}: ${message}`);
  if (isPodEnded(pod)) {
    const { terminated } = state ?? {};
    const words = [status.reason, status.message, terminated?.reason, terminated?.message];
    return fault("LaunchFailed", words.filter(Boolean).join(": ") || "it ended before it began");
  }
  const place = status.conditions?.find(({ type }) => type === "PodScheduled");
  if (place?.status === "False" && waitedMs > NO_ROOM_MS) {
    const advice =
      "Other pods hold what Heddle counts as free: keep them off this node, or let workers offer less";
    return fault("LaunchFailed", `Kubernetes has no room for it: ${place.message}. ${advice}`);
  }
  return undefined;
}

function fault(
  reason: LaunchError["reason"],
  message: string,
): Pick<LaunchError, "reason" | "message"> {
  return { reason, message };
}
