import type { Heddle } from "@heddle/client/heddle";
import type { Project } from "@heddle/contracts/api/projects";
import { PROJECT, type ProjectSpec } from "@heddle/contracts/kubernetes/settings-resources";
import { orNotFound } from "../kubernetes/refusal.ts";
import { type ClusterThing, listOf, type SettingsKind } from "./settings-kind.ts";

/** Projects are made by their objects, or changed where they exist. */
export function projectKind({ projects }: Heddle): SettingsKind<ProjectSpec> {
  return {
    kind: PROJECT.kind,
    plural: PROJECT.plural,
    list: async () => listOf(projects.list(), thingOf),
    get: async (id) => {
      const project = await orNotFound(projects.get(id));
      return project && thingOf(project);
    },
    wanted: ({ weight = 1, quota = {} }) => ({ weight, ...quota }),
    apply: async (id, { name: _, ...settings }) => thingOf(await projects.set(id, settings)),
    patchOf: ({
      weight,
      gpu_count = null,
      gpu_hours = null,
      queue_length = null,
      storage_bytes = null,
    }) => ({
      weight,
      quota: { gpu_count, gpu_hours, queue_length, storage_bytes },
    }),
  };
}

function thingOf({ name, weight, quota, usage }: Project): ClusterThing {
  const { gpu_count: gpus, gpu_hours: hours, storage_bytes: storage } = quota;
  const areGpusUsedUp =
    (gpus !== null && usage.gpus >= gpus) || (hours !== null && usage.gpu_hours >= hours);
  const isFull = storage !== null && usage.storage_bytes >= storage;
  const isUsedUp = areGpusUsedUp || isFull;
  return {
    id: name,
    settings: {
      weight,
      gpu_count: gpus ?? undefined,
      gpu_hours: hours ?? undefined,
      queue_length: quota.queue_length ?? undefined,
      storage_bytes: storage ?? undefined,
    },
    phase: isUsedUp ? "Full" : "Open",
    reason: isUsedUp ? "Quota" : null,
    message: messageOf(areGpusUsedUp, isFull),
    status: {
      gpus: usage.gpus,
      gpuHours: usage.gpu_hours.toFixed(1),
      windowStart: usage.window_start,
      storageBytes: usage.storage_bytes,
      weight: String(weight),
    },
  };
}

function messageOf(areGpusUsedUp: boolean, isFull: boolean): string | null {
  if (areGpusUsedUp) return "its jobs have what the quota allows";
  return isFull ? "it stores what the quota allows" : null;
}
