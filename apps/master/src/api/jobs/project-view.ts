import type { Project } from "@heddle/contracts/api/projects";
import { usageAt } from "@heddle/control/jobs/records/account-changes";
import type { ProjectRecord } from "@heddle/control/jobs/records/records";
import { type ProjectStorage, storedBytesOf } from "@heddle/control/project-storage";

/** A project with what its jobs hold now, and what it stores. */
export function viewProject(
  { name, weight, quota, usage }: ProjectRecord,
  stored: ProjectStorage,
  nowMs: number,
): Project {
  const now = usageAt(usage, nowMs);
  const storage = stored.useOf(name);
  return {
    id: name,
    object: "project",
    name,
    weight,
    quota: {
      gpu_count: quota.gpuMilli === undefined ? null : quota.gpuMilli / 1_000,
      gpu_hours: quota.gpuHours ?? null,
      queue_length: quota.queueLength ?? null,
      storage_bytes: quota.storageBytes ?? null,
    },
    usage: {
      gpus: now.heldGpuMilli / 1_000,
      cpu_cores: now.heldCpuMilli / 1_000,
      memory_mib: now.heldMemoryMib,
      gpu_hours: now.windowGpuMilliMs / 3.6e9,
      window_start: new Date(now.windowStartMs).toISOString(),
      storage_bytes: storedBytesOf(storage),
      storage: { ...storage },
    },
  };
}
