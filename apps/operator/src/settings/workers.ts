import type { Heddle } from "@heddle/client/heddle";
import type { Worker } from "@heddle/contracts/api/workers";
import { WORKER, type WorkerSpec } from "@heddle/contracts/kubernetes/settings-resources";
import { orNotFound } from "../kubernetes/refusal.ts";
import type { ClusterThing, SettingsKind } from "./settings-kind.ts";

/** Every node of the cluster has an object; its spec drains it. */
export function workerKind(
  { workers }: Heddle,
  mirror: SettingsKind<WorkerSpec>["mirror"],
): SettingsKind<WorkerSpec> {
  return {
    kind: WORKER.kind,
    plural: WORKER.plural,
    mirror,
    list: async () => (await workers.list()).map(thingOf),
    get: async (id) => {
      const worker = await orNotFound(workers.get(id));
      return worker && thingOf(worker);
    },
    wanted: ({ drain }) => ({ drained: drain !== undefined }),
    apply: async (id, { drain }) =>
      thingOf(
        drain
          ? await workers.drain(id, { deadlineSeconds: drain.deadline_seconds })
          : await workers.resume(id),
      ),
    patchOf: ({ drained }) => ({ drain: drained ? {} : null }),
  };
}

function thingOf(worker: Worker): ClusterThing {
  const { id, name, kind, jobs, status, replicas, refuses_leader: refuses } = worker;
  const drained = jobs?.state === "draining" || jobs?.state === "drained";
  const phase = `${status.charAt(0).toUpperCase()}${status.slice(1)}`;
  const isReady = status === "ready" && !drained;
  const quarantined = jobs?.quarantined.length ?? 0;
  const message = refuses ?? (quarantined > 0 ? `${quarantined} devices are out of use` : null);
  const reason = refuses ? "RefusesLeader" : quarantined > 0 ? "SickDevices" : null;
  return {
    id,
    name,
    settings: { drained },
    phase,
    reason,
    message,
    conditions: [
      {
        type: "Ready",
        status: isReady ? "True" : "False",
        reason: reason ?? phase,
        message: message ?? "",
      },
      {
        type: "Drained",
        status: jobs?.state === "drained" ? "True" : "False",
        reason: drained ? "Asked" : "NotAsked",
        message: "",
      },
    ],
    status: {
      role: kind,
      version: worker.version,
      address: worker.address,
      gpus: jobs?.gpus ?? worker.gpus.length,
      gpusHeld: jobs?.gpus_held ?? 0,
      gpuType: jobs?.gpu_type || null,
      tasks: jobs?.tasks.length ?? 0,
      replicas: replicas.length,
      drainBy: jobs?.drain_by ?? null,
    },
  };
}
