import type { Origin } from "../support/http-connection.ts";
import type { WatchedProcess } from "../support/process-sampler.ts";

/** A running gateway (or the mock engine itself) that takes chat requests. */
export interface GatewayUnderTest {
  readonly name: string;
  readonly processes: readonly WatchedProcess[];
  readonly origin: Origin;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** Gateways run alone on one core; mock engines and the load generator share another. */
export interface GatewayCores {
  readonly gateway: number;
  readonly rest: number;
}
