import { Counter, type Registry } from "prom-client";
import type { NodeDirectory, ParameterServerRefusals } from "../nodes/node-directory.ts";

/** Parameter servers with a series of their own. */
const MAX_SERVERS = 1_000;
const REASONS: readonly (keyof ParameterServerRefusals)[] = ["strangers", "invalid", "stale"];

/**
 * `heddle_parameter_server_refusals_total` in /metrics: refusals of the attached parameter servers
 * by their last report. A restarted server counts from 0, as counters do.
 */
export function exposeParameterServerMetrics(
  registry: Registry,
  directory: Pick<NodeDirectory, "nodes">,
): void {
  new Counter({
    name: "heddle_parameter_server_refusals_total",
    help:
      "What a parameter server refused: strangers (no token, or another), invalid (malformed, NaN, " +
      `another plan) and stale (an attempt that is over). Up to ${MAX_SERVERS} servers.`,
    labelNames: ["node", "name", "reason"],
    registers: [registry],
    collect() {
      this.reset();
      const told = directory.nodes().filter(({ refusals }) => refusals !== undefined);
      for (const { id, name, refusals } of told.slice(0, MAX_SERVERS)) {
        for (const reason of REASONS) this.inc({ node: id, name, reason }, refusals?.[reason]);
      }
    },
  });
}
