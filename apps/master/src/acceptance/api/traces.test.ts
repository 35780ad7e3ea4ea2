import { eventually } from "@heddle/base/testing/eventually";
import { OtlpReceiver, type ReceivedSpan } from "@heddle/observability/testing/otlp-receiver";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { NO_END, ProcessCluster, TINY } from "../../../test/process-cluster.ts";

let receiver: OtlpReceiver;
let cluster: ProcessCluster;

beforeAll(async () => {
  receiver = await OtlpReceiver.start();
  vi.stubEnv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json");
  vi.stubEnv("OTEL_BSP_SCHEDULE_DELAY", "100");
  vi.stubEnv("OTEL_METRIC_EXPORT_INTERVAL", "500");
  vi.stubEnv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test");
  const flags = ["--otlp-endpoint", receiver.endpoint];
  const offer = ["--task-isolation", "optional", "--task-users", "own"];
  cluster = await ProcessCluster.start({ masterFlags: flags, workerFlags: [...flags, ...offer] });
});

afterAll(async () => {
  await cluster?.close();
  receiver?.close();
  vi.unstubAllEnvs();
});

const CALLER = "00f067aa0ba902b7";

function headersOf(traceId: string): Record<string, string> {
  return { traceparent: `00-${traceId}-${CALLER}-01` };
}

async function spanOf(traceId: string, name: RegExp): Promise<ReceivedSpan> {
  await eventually(() => receiver.named(traceId, name) !== undefined);
  const span = receiver.named(traceId, name);
  if (!span) throw new Error(`no ${name}: ${JSON.stringify(receiver.spans)} ${cluster.output}`);
  return span;
}

// holds: traces
it("traces: a streamed chat is one trace from its caller to the engine", async () => {
  const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
  const body = { model: TINY, messages: [{ role: "user" as const, content: "hello" }] };
  const stream = await cluster.openai.chat.completions.create(
    { ...body, stream: true, max_tokens: 5, logit_bias: NO_END },
    { headers: headersOf(traceId) },
  );
  for await (const _ of stream);
  const http = await spanOf(traceId, /^POST /);
  expect(http).toMatchObject({
    service: "heddle-master",
    name: "POST /api/v1/chat/completions",
    parentSpanId: CALLER,
    attributes: { "http.response.status_code": 200, "http.request.method": "POST" },
  });
  const call = await spanOf(traceId, /^chat /);
  expect(call).toMatchObject({
    name: `chat ${TINY}`,
    parentSpanId: http.spanId,
    attributes: {
      "gen_ai.operation.name": "chat",
      "gen_ai.provider.name": "heddle",
      "gen_ai.request.model": TINY,
      "gen_ai.usage.output_tokens": 5,
      "gen_ai.response.finish_reasons": ["length"],
    },
  });
  expect(call.attributes["gen_ai.usage.input_tokens"]).toBeGreaterThan(0);
  const firstToken = Number(call.attributes["gen_ai.response.time_to_first_chunk"]);
  expect(firstToken).toBeGreaterThan(0);
  // Counted from the request, which is read and admitted before its call begins.
  expect(firstToken).toBeLessThanOrEqual(http.seconds);
  const engine = await spanOf(traceId, /^engine /);
  expect(engine).toMatchObject({
    service: "heddle-worker",
    parentSpanId: call.spanId,
    events: ["first token"],
    attributes: {
      "gen_ai.usage.output_tokens": 5,
      "gen_ai.usage.input_tokens": call.attributes["gen_ai.usage.input_tokens"],
    },
  });
  expect(receiver.spans.filter((span) => span.traceId === traceId)).toHaveLength(3);
});

it("traces: a refused call has the status of its refusal and no span of an engine", async () => {
  const traceId = "0af7651916cd43dd8448eb211c80319c";
  const wrong = { model: "none", messages: [{ role: "user" as const, content: "hello" }] };
  const refused = cluster.openai.chat.completions.create(wrong, { headers: headersOf(traceId) });
  await expect(refused).rejects.toThrow("404");
  const http = await spanOf(traceId, /^POST /);
  expect(http.attributes["http.response.status_code"]).toBe(404);
  expect(receiver.named(traceId, /^engine /)).toBeUndefined();
});

// holds: traces
it("traces: a job is one trace from its submission to the end of its task", async () => {
  const traceId = "b7ad6b7169203331c3ce929d0e0e4736";
  const spec = { name: "traced", command: "echo of $TRACEPARENT", resources: { cpu_cores: 1 } };
  const reply = await fetch(`${cluster.url}/api/v1/jobs`, {
    method: "POST",
    headers: {
      ...headersOf(traceId),
      authorization: `Bearer ${cluster.adminKey}`,
      "content-type": "application/json",
    },
    body: JSON.stringify(spec),
  });
  expect(reply.status).toBe(202);
  const { job_id: id } = (await reply.json()) as { job_id: string };
  const http = await spanOf(traceId, /^POST /);
  const job = await spanOf(traceId, /^job /);
  expect(job).toMatchObject({
    name: "job traced",
    service: "heddle-master",
    parentSpanId: http.spanId,
    attributes: { "heddle.job.id": id, "heddle.job.state": "succeeded" },
  });
  const task = await spanOf(traceId, /^task /);
  expect(task).toMatchObject({
    service: "heddle-worker",
    parentSpanId: job.spanId,
    attributes: { "heddle.task.rank": 0, "heddle.task.exit_code": 0 },
  });
  // What the task's program traces is within the task.
  const logs = await (await cluster.request("GET", `/api/v1/jobs/${id}/logs`)).text();
  expect(logs).toContain(`00-${traceId}-${task.spanId}-01`);
  expect(cluster.output).toMatch(
    new RegExp(
      `"trace_id":"${traceId}","span_id":"${task.spanId}".*"msg":"task"|"msg":"task".*${traceId}`,
    ),
  );
});

it("traces: a job submitted again under its id is the same job, in whatever trace", async () => {
  const id = "job_01JD0000000000000000000000";
  const spec = { id, name: "twice", command: "true", resources: { cpu_cores: 1 } };
  const submit = (headers: Record<string, string>) =>
    fetch(`${cluster.url}/api/v1/jobs`, {
      method: "POST",
      headers: {
        ...headers,
        authorization: `Bearer ${cluster.adminKey}`,
        "content-type": "application/json",
      },
      body: JSON.stringify(spec),
    });
  const tries = [{}, {}, headersOf("c7ad6b7169203331c3ce929d0e0e4736")];
  for (const headers of tries) expect((await submit(headers)).status).toBe(202);
});

// holds: metrics-otlp
it("metrics: a receiver has those of the master and of the worker", async () => {
  const has = (service: string, name: string) =>
    [...receiver.metrics].some(
      ([source, metrics]) =>
        source.startsWith(`${service} `) && metrics.some((metric) => metric.name === name),
    );
  const wanted = [
    ["heddle-master", "heddle_cluster_workers"],
    ["heddle-worker", "heddle_node_memory_used_bytes"],
  ] as const;
  for (const [service, name] of wanted) await eventually(() => has(service, name), name);
});
