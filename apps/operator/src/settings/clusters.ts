import type { Heddle } from "@heddle/client/heddle";
import type { ClusterStatusReply } from "@heddle/contracts/api/cluster";
import {
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
    const status = await heddle.cluster.status();
    // Masters that run outside of Kubernetes have none.
    const scale = await unless(404, sets.readNamespacedStatefulSetScale({ name, namespace }));
    return thingOf(cluster, status, scale?.spec?.replicas ?? status.quorum.voters);
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
        await removeSurplusMasters(heddle, name, masters, log);
        const body = { spec: { replicas: masters } };
        const target = { name, namespace, body, fieldManager: OPERATOR };
        await sets.patchNamespacedStatefulSetScale(target, MERGE);
        log.info({ name, masters }, "the number of masters was set");
      }
      return get();
    },
    patchOf: ({ masters }) => ({ masters }),
  };
}

function thingOf(id: string, status: ClusterStatusReply, masters: number): ClusterThing {
  const { health, quorum, leader, version, workers, gpus, models } = status;
  const { voters, reachable, has_quorum: hasQuorum } = quorum;
  const isComplete = voters === masters;
  const phase = isComplete ? PHASES[health] : "Scaling";
  const reason = isComplete ? null : "Masters";
  const message = isComplete ? null : `${voters} of ${masters} masters are members`;
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

const PHASES = { ok: "Ready", degraded: "Degraded", unavailable: "Unavailable" } as const;
