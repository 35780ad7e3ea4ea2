import type { Heddle } from "@heddle/client/heddle";
import type { ClusterStatusReply } from "@heddle/contracts/api/cluster";
import {
  GROUP_SIZES,
  HEDDLE_CLUSTER,
  type HeddleClusterSpec,
} from "@heddle/contracts/kubernetes/settings-resources";
import type { Log } from "@heddle/observability/logger";
import {
  AppsV1Api,
  type KubeConfig,
  PatchStrategy,
  setHeaderOptions,
} from "@kubernetes/client-node";
import { isUnanswered } from "../kubernetes/refusal.ts";
import { OPERATOR, unless } from "../kubernetes/resource-api.ts";
import { removeSurplusMasters } from "./masters-set.ts";
import type { ClusterThing, SettingsKind } from "./settings-kind.ts";

const MERGE = setHeaderOptions("Content-Type", PatchStrategy.MergePatch);

/** Where the object of the operator's own cluster is, and its masters' pods are. */
export interface OwnCluster {
  readonly cluster: string;
  readonly namespace: string;
}

/** The operator's own cluster; its spec has the number of masters, whose StatefulSet is CLUSTER-master. */
export function clusterKind(
  heddle: Heddle,
  config: KubeConfig,
  { cluster, namespace }: OwnCluster,
  log: Log,
): SettingsKind<HeddleClusterSpec> {
  const sets = config.makeApiClient(AppsV1Api);
  const name = `${cluster}-master`;
  const get = async (): Promise<ClusterThing> => {
    // Masters that run outside of Kubernetes have none.
    const scale = await unless(404, sets.readNamespacedStatefulSetScale({ name, namespace }));
    // A 0 is left out of an object's text.
    const replicas = scale && (scale.spec?.replicas ?? 0);
    try {
      return thingOf(cluster, await heddle.cluster.status(), replicas);
    } catch (error) {
      if (!isUnanswered(error)) throw error;
      return silentThing(cluster, replicas);
    }
  };
  return {
    kind: HEDDLE_CLUSTER.kind,
    plural: HEDDLE_CLUSTER.plural,
    mirror: { cluster, namespace },
    list: async () => [await get()],
    get: async (id) => (id === cluster ? get() : undefined),
    wanted: ({ masters }) => (masters === undefined ? undefined : { masters }),
    apply: async (_, { masters }) => {
      if (masters !== undefined) {
        // New masters have pods before they are members, others leave the group before their pods go.
        await removeSurplusMasters(heddle, { prefix: name, masters }, log);
        const body = { spec: { replicas: masters } };
        const target = { name, namespace, body, fieldManager: OPERATOR };
        await sets.patchNamespacedStatefulSetScale(target, MERGE);
        log.info({ name, masters }, "the number of masters was set");
      }
      return get();
    },
    patchOf: ({ masters }) => (isGroupSize(masters) ? { masters } : undefined),
  };
}

function isGroupSize(masters: unknown): boolean {
  return GROUP_SIZES.some((size) => size === masters);
}

function thingOf(
  id: string,
  status: ClusterStatusReply,
  replicas: number | undefined,
): ClusterThing {
  const { health, quorum, leader, version, workers, gpus, models } = status;
  const { voters, reachable, has_quorum: hasQuorum } = quorum;
  const masters = replicas ?? voters;
  const isComplete = voters === masters;
  const phase = isComplete || !isGroupSize(masters) ? PHASES[health] : "Scaling";
  const { reason = null, message = null } = differenceOf(voters, masters);
  const isReady = health === "ok" && isComplete;
  return {
    id,
    settings: { masters },
    phase,
    reason,
    message,
    conditions: [
      {
        type: "Ready",
        status: isReady ? "True" : "False",
        reason: reason ?? phase,
        message: message ?? `${reachable} of ${voters} masters are reachable`,
      },
      {
        type: "Available",
        status: hasQuorum ? "True" : "False",
        reason: hasQuorum ? "Quorum" : "NoQuorum",
        message: "",
      },
    ],
    status: {
      masters: voters,
      reachable,
      leader,
      version,
      workers: workers.attached,
      gpus: gpus.total,
      models: models.registered,
    },
  };
}

/** What the cluster is while no master answers. */
function silentThing(id: string, replicas: number | undefined): ClusterThing {
  const { reason = "NoAnswer", message = "no master answers" } =
    replicas === undefined ? {} : differenceOf(replicas, replicas);
  const conditions = ["Ready", "Available"].map((type) => {
    return { type, status: "False" as const, reason, message };
  });
  return {
    id,
    settings: { masters: replicas },
    phase: PHASES.unavailable,
    reason,
    message,
    conditions,
    status: { reachable: 0, leader: null, workers: null, gpus: null, models: null },
  };
}

/** How the pods of masters differ from the members of the group, or from what a group may have. */
function differenceOf(
  voters: number,
  replicas: number,
): { readonly reason?: string; readonly message?: string } {
  if (!isGroupSize(replicas)) {
    const message = `the masters' StatefulSet has ${replicas} replicas, and a group is of 1, 3 or 5: scale it`;
    return { reason: "Replicas", message };
  }
  if (voters === replicas) return {};
  return { reason: "Masters", message: `${voters} of ${replicas} masters are members` };
}

const PHASES = { ok: "Ready", degraded: "Degraded", unavailable: "Unavailable" } as const;
