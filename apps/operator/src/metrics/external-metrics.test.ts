import { expect, it } from "vitest";
import { answerMetrics } from "./external-metrics.ts";

const VERSION = "/apis/external.metrics.k8s.io/v1beta1";
const demand = async () => ({
  heddle_job_tasks: 12,
  heddle_job_gpus: 0.5,
  heddle_jobs_waiting: 3,
  heddle_requests: 7,
  heddle_requests_waiting: 0,
});

it("external metrics: a value is what the cluster needs now", async () => {
  const now = new Date("2026-01-02T03:04:05.678Z");
  const { status, body } = await answerMetrics(
    `${VERSION}/namespaces/a-b/heddle_job_gpus`,
    demand,
    now,
  );
  expect(status).toBe(200);
  expect(body).toMatchObject({
    kind: "ExternalMetricValueList",
    items: [{ metricName: "heddle_job_gpus", value: "500m", timestamp: "2026-01-02T03:04:05Z" }],
  });
});

it("external metrics: every metric is listed and answered", async () => {
  const { body } = await answerMetrics(VERSION, demand);
  const { resources } = body as { readonly resources: readonly { readonly name: string }[] };
  expect(resources.map(({ name }) => name)).toEqual(Object.keys(await demand()));
  for (const { name } of resources) {
    const answer = await answerMetrics(`${VERSION}/namespaces/x/${name}`, demand);
    expect(answer.status, name).toBe(200);
  }
});

it.each([
  `${VERSION}/namespaces/x/none`,
  `${VERSION}/namespaces/x/constructor`,
  `${VERSION}/heddle_requests`,
  "/openapi/v2",
])("external metrics: %s is not found", async (path) => {
  const { status, body } = await answerMetrics(path, demand);
  expect(status).toBe(404);
  expect(body).toMatchObject({ kind: "Status", reason: "NotFound" });
});
