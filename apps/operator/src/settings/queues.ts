import type { Heddle } from "@heddle/client/heddle";
import type { Queue } from "@heddle/contracts/api/queues";
import { QUEUE, type QueueSpec } from "@heddle/contracts/kubernetes/settings-resources";
import { type ClusterThing, listOf, type SettingsKind } from "./settings-kind.ts";

/** Queues are made by their objects, or changed where they exist. */
export function queueKind({ queues }: Heddle): SettingsKind<QueueSpec> {
  const list = async () => listOf(queues.list(), thingOf);
  return {
    kind: QUEUE.kind,
    plural: QUEUE.plural,
    list,
    get: async (id) => (await list()).find((queue) => queue.id === id),
    wanted: ({ strategy = "fragmentation", max_length }) => ({ strategy, max_length }),
    apply: async (id, { name: _, ...settings }) => thingOf(await queues.set(id, settings)),
    patchOf: ({ strategy, max_length = null }) => ({ strategy, max_length }),
  };
}

function thingOf({ name, strategy, length, max_length: limit }: Queue): ClusterThing {
  const isFull = limit !== null && length >= limit;
  return {
    id: name,
    settings: { strategy, max_length: limit ?? undefined },
    phase: isFull ? "Full" : "Open",
    message: isFull ? `it has its maximum of ${limit} live jobs` : null,
    reason: isFull ? "MaxLength" : null,
    status: { length, maxLength: limit, strategy },
  };
}
