import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import { AppError } from "@heddle/base/errors";
import { afterEach, describe, expect, it } from "vitest";
import { createLogger } from "../logger.ts";
import { jobTraceOf, newJobTrace } from "./job-trace.ts";
import { type OtlpSettings, readOtlpSettings } from "./otlp-settings.ts";
import { parseTraceParent, traceParentOf } from "./trace-context.ts";
import { currentSpan, startTracing, stopTracing, tracing, withSpan } from "./tracing.ts";

const asked = { endpoint: "http://127.0.0.1:1", service: "heddle-test", instance: "one" };
const PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

function settings(env: NodeJS.ProcessEnv = {}, endpoint = asked.endpoint): OtlpSettings {
  const read = readOtlpSettings({ ...asked, endpoint }, env);
  if (!read) throw new Error("no settings");
  return read;
}

describe("trace context", () => {
  it("trace context: a header of a later version is read by its known part", () => {
    const context = parseTraceParent(`${PARENT.replace("00-", "cc-")}-more`);
    expect(context && traceParentOf(context)).toBe(PARENT);
  });

  it.each([
    "",
    undefined,
    ["a", "b"],
    PARENT.toUpperCase(),
    `${PARENT}-more`,
    PARENT.replace("00-", "ff-"),
    PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0".repeat(32)),
    PARENT.replace("00f067aa0ba902b7", "0".repeat(16)),
  ])("trace context: %j names no span", (text) => {
    expect(parseTraceParent(text)).toBeUndefined();
  });

  it("job traces: a job with an id of its client's has the same trace on every try", () => {
    const span = (digit: string) => ({
      traceId: digit.repeat(32),
      spanId: digit.repeat(16),
      isSampled: true,
    });
    const first = newJobTrace("job_1", { span: span("a"), caller: undefined }, true);
    expect(newJobTrace("job_1", { span: span("b"), caller: undefined }, true)).toBe(first);
    expect(jobTraceOf("job_1", { TRACEPARENT: first })?.parent).toBeUndefined();
    const own = newJobTrace("job_2", { span: span("a"), caller: undefined }, false);
    expect(jobTraceOf("job_2", { TRACEPARENT: own })?.parent).toEqual(span("a"));
  });
});

describe("OTLP settings", () => {
  it("OTLP settings: no endpoint, or a disabled SDK, means no traces", () => {
    expect(readOtlpSettings({ ...asked, endpoint: undefined }, {})).toBeUndefined();
    for (const env of [{ OTEL_SDK_DISABLED: "true" }, { OTEL_TRACES_EXPORTER: "none" }]) {
      expect(readOtlpSettings(asked, env)).toBeUndefined();
    }
  });

  it("OTLP settings: the flag comes before the variables, and that of traces is whole", () => {
    const env = {
      OTEL_EXPORTER_OTLP_ENDPOINT: "http://base:4318/",
      OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "http://traces:1/own",
    };
    const none = { ...asked, endpoint: undefined };
    expect(settings(env, "http://flag:4318").url).toBe("http://flag:4318/v1/traces");
    expect(readOtlpSettings(none, env)?.url).toBe("http://traces:1/own");
    const base = { OTEL_EXPORTER_OTLP_ENDPOINT: env.OTEL_EXPORTER_OTLP_ENDPOINT };
    expect(readOtlpSettings(none, base)?.url).toBe("http://base:4318/v1/traces");
  });

  it.each([
    [{ OTEL_EXPORTER_OTLP_PROTOCOL: "grpc" }, /OTEL_EXPORTER_OTLP_PROTOCOL takes http\/protobuf/],
    [{ OTEL_TRACES_SAMPLER: "jaeger" }, /OTEL_TRACES_SAMPLER takes always_on/],
    [
      { OTEL_TRACES_SAMPLER: "traceidratio", OTEL_TRACES_SAMPLER_ARG: "2" },
      /OTEL_TRACES_SAMPLER_ARG takes a number 0\.\.1, not 2/,
    ],
    [{ OTEL_BSP_MAX_QUEUE_SIZE: "0" }, /OTEL_BSP_MAX_QUEUE_SIZE takes a whole number 1\.\.65536/],
  ])("OTLP settings: %j is refused with what it takes", (env, message) => {
    expect(() => settings(env)).toThrow(message);
    expect(() => settings(env)).toThrow(AppError);
  });

  it("OTLP settings: an address without a scheme is refused by the flag's name", () => {
    expect(() => settings({}, "collector:4318")).toThrow(
      /--otlp-endpoint takes http:\/\/HOST:PORT/,
    );
  });
});

describe("tracing", () => {
  afterEach(stopTracing);

  // holds: traces-off
  it("tracing: nothing of OpenTelemetry is loaded where it is off", () => {
    const place = JSON.stringify(new URL("../../dist/", import.meta.url).href);
    const loaded = (given: string) =>
      execFileSync(process.execPath, ["--input-type=module", "-e", script(place, given)], {
        encoding: "utf8",
      });
    expect(loaded("undefined")).toBe("0\n");
    expect(Number(loaded(JSON.stringify(settings())))).toBeGreaterThan(5);
  });

  it("tracing: a receiver gets protobuf by default, and a dead one holds up nothing", async () => {
    const bodies: Buffer[] = [];
    const server = createServer(async (request, reply) => {
      bodies.push(await buffer(request));
      reply.writeHead(200, { "content-type": String(request.headers["content-type"]) }).end();
      types.push(String(request.headers["content-type"]));
    });
    const types: string[] = [];
    await once(server.listen(0, "127.0.0.1"), "listening");
    const { port } = server.address() as AddressInfo;
    await startTracing(settings({}, `http://127.0.0.1:${port}`));
    tracing()?.start({ name: "a plain span", kind: "internal" }).end();
    await stopTracing();
    server.close();
    expect(types).toEqual(["application/x-protobuf"]);
    expect(Buffer.concat(bodies).includes("a plain span")).toBe(true);
    expect(Buffer.concat(bodies).includes("heddle-test")).toBe(true);

    await startTracing(settings({ OTEL_BSP_MAX_QUEUE_SIZE: "8" }));
    const startedMs = performance.now();
    for (let at = 0; at < 20_000; at++) tracing()?.start({ name: "x", kind: "internal" }).end();
    expect(performance.now() - startedMs).toBeLessThan(30_000);
    await stopTracing();
    expect(performance.now() - startedMs).toBeLessThan(60_000);
  });

  it("tracing: the lines of a span's work name its trace, others none", async () => {
    const lines: Record<string, unknown>[] = [];
    const destination = { write: (line: string) => void lines.push(JSON.parse(line)) };
    const log = createLogger({ service: "test", level: "info", destination });
    await startTracing(settings());
    const span = tracing()?.start({
      name: "x",
      kind: "internal",
      parent: parseTraceParent(PARENT),
    });
    await withSpan(span, async () => {
      await delay(1);
      log.info("inside");
    });
    log.info("outside");
    expect(lines[0]).toMatchObject({ trace_id: PARENT.slice(3, 35), msg: "inside" });
    expect(lines[0]).toHaveProperty("span_id", span?.context.spanId);
    expect(lines[1]).not.toHaveProperty("trace_id");
    expect(currentSpan()).toBeUndefined();
  });

  it("tracing: a caller that does not sample is not sent, and its trace continues", async () => {
    await startTracing(settings());
    const parent = parseTraceParent(PARENT.replace(/01$/, "00"));
    const span = tracing()?.start({ name: "x", kind: "internal", parent });
    expect(span?.context).toMatchObject({ traceId: parent?.traceId, isSampled: false });
  });
});

/** Prints how many modules of OpenTelemetry a start with these settings loads. */
function script(place: string, given: string): string {
  return `
    import { registerHooks } from "node:module";
    let count = 0;
    registerHooks({
      load(url, context, next) {
        if (url.includes("@opentelemetry")) count++;
        return next(url, context);
      },
    });
    const { createLogger } = await import(${place} + "logger.js");
    const { startTracing } = await import(${place} + "tracing/tracing.js");
    createLogger({ service: "test", level: "silent" });
    await startTracing(${given});
    // Without the colours that FORCE_COLOR gives to numbers.
    console.log(String(count));
    process.exit(0);`;
}
