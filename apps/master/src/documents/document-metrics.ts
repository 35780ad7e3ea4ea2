import { ReadMetric } from "@heddle/observability/read-metric";
import type { Registry } from "prom-client";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import type { ContentReplicas } from "./content-replicas.ts";
import type { DocumentUpkeep } from "./document-upkeep.ts";

interface DocumentParts {
  readonly control: Pick<ControlPlane, "documents">;
  readonly upkeep: Pick<DocumentUpkeep, "missing" | "swept">;
  readonly replicas: Pick<ContentReplicas, "healed" | "damaged">;
}

type Figure = readonly [
  name: string,
  type: "gauge" | "counter",
  help: string,
  read: (parts: DocumentParts) => number,
];

const FIGURES: readonly Figure[] = [
  ["", "gauge", "Stored documents of all keys.", ({ control }) => control.documents.total.count],
  ["_bytes", "gauge", "Their contents' bytes.", ({ control }) => control.documents.total.bytes],
  ["_missing", "gauge", "Contents that this disk lacks.", ({ upkeep }) => upkeep.missing],
  ["_healed_total", "counter", "Contents fetched again.", ({ replicas }) => replicas.healed],
  ["_damaged_total", "counter", "Damaged own copies.", ({ replicas }) => replicas.damaged],
  ["_swept_total", "counter", "Contents removed without a record.", ({ upkeep }) => upkeep.swept],
];

/** `heddle_documents...` in /metrics. */
export function exposeDocumentMetrics(registry: Registry, parts: DocumentParts): void {
  for (const [suffix, type, help, read] of FIGURES) {
    const name = `heddle_documents${suffix}`;
    new ReadMetric(registry, { name, type, help }, () => [{ labels: {}, value: read(parts) }]);
  }
}
