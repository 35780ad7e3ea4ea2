import { ReadMetric } from "@heddle/observability/read-metric";
import type { Registry } from "prom-client";
import type { NodeDirectory, ParameterServerRefusals } from "../nodes/node-directory.ts";

/** Parameter servers with a series of their own. */
const MAX_SERVERS = 1_000;
const REASONS: readonly (keyof ParameterServerRefusals)[] = ["unauthenticated", "invalid", "stale"];

/**
 * `heddle_parameter_server_refusals_total` in /metrics: refusals of the attached parameter servers
 * by their last report. A restarted server counts from 0, as counters do.
 */
export function exposeParameterServerMetrics(
  registry: Registry,
  directory: Pick<NodeDirectory, "nodes">,
): void {
  const name = "heddle_parameter_server_refusals_total";
  const help =
    "What a parameter server refused: unauthenticated (no token, or another), invalid (malformed, NaN, " +
    `another plan) and stale (an attempt that has ended). Up to ${MAX_SERVERS} servers.`;
  new ReadMetric(registry, { name, help, type: "counter" }, function* () {
    let shown = 0;
    for (const { id, name, refusals } of directory.nodes()) {
      if (!refusals || shown++ >= MAX_SERVERS) continue;
      for (const reason of REASONS) {
        yield { labels: { node: id, name, reason }, value: refusals[reason] };
      }
    }
  });
}
