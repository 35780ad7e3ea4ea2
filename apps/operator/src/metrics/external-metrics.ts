import { DEMAND, type Demand, type DemandName } from "./demand.ts";

/** The group that autoscalers read metrics of things outside Kubernetes from. */
export const METRICS_GROUP = "external.metrics.k8s.io";
const VERSION = `${METRICS_GROUP}/v1beta1`;
const VALUES = new RegExp(`^/apis/${VERSION}/namespaces/([a-z0-9.-]{1,63})/([a-z0-9_.-]{1,63})$`);

/** What is answered to a request of the API server. */
export interface MetricsReply {
  readonly status: number;
  readonly body: object;
}

/** Answers `path`: the list of what there is, or the value of a metric. */
export async function answerMetrics(
  path: string,
  demand: () => Promise<Demand>,
  now = new Date(),
): Promise<MetricsReply> {
  if (path === `/apis/${METRICS_GROUP}`) return { status: 200, body: group };
  if (path === `/apis/${VERSION}`) return { status: 200, body: resources };
  const [, , name = ""] = VALUES.exec(path) ?? [];
  if (!isDemand(name)) return failure(404, "NotFound", `there is no metric ${name || path}`);
  const amount = (await demand())[name];
  // Of GPUs there may be shares.
  const value = Number.isInteger(amount) ? String(amount) : `${Math.ceil(amount * 1_000)}m`;
  const timestamp = `${now.toISOString().slice(0, 19)}Z`;
  const item = { metricName: name, metricLabels: {}, timestamp, value };
  const body = { kind: "ExternalMetricValueList", apiVersion: VERSION, metadata: {} };
  return { status: 200, body: { ...body, items: [item] } };
}

export function failure(status: number, reason: string, message: string): MetricsReply {
  const body = { kind: "Status", apiVersion: "v1", metadata: {}, status: "Failure" };
  return { status, body: { ...body, reason, message, code: status } };
}

function isDemand(name: string): name is DemandName {
  return Object.hasOwn(DEMAND, name);
}

const version = { groupVersion: VERSION, version: "v1beta1" };
const group = {
  kind: "APIGroup",
  apiVersion: "v1",
  name: METRICS_GROUP,
  versions: [version],
  preferredVersion: version,
};
const resources = {
  kind: "APIResourceList",
  apiVersion: "v1",
  groupVersion: VERSION,
  resources: Object.keys(DEMAND).map((name) => ({
    name,
    singularName: "",
    namespaced: true,
    kind: "ExternalMetricValueList",
    verbs: ["get"],
  })),
};
